"""Names for mappings whose keys are not known here: raw JSON and YAML, JSON schemas, and variables of page templates.

What profzoo itself writes has a type with named keys: see profzoo/cell/*_types.py and
profzoo/verdicts/rules/rule_types.py.
"""

from collections.abc import Mapping
from typing import Any

# An object of a JSON or YAML file that is not checked yet, or that another program wrote. Its writer decides the keys.
JsonObject = Mapping[str, Any]
# A JSON Schema (draft 2020-12), or a part of one.
JsonSchema = Mapping[str, Any]
# Settings as a user wrote them, for the whole configuration, a model or a variant: checked by the schema, not by mypy.
GivenSettings = Mapping[str, Any]
# Variables of a page template, by the names that the template uses.
TemplateVariables = dict[str, Any]

# Needs: the configuration. Makes: what a collecting job goes by, which is all that it is collected again for.


# Of every collecting job: variables that its program sees besides those that are known, and the values of those that
# change what is measured, where there are any.
SURROUNDINGS = {"environment": config["environment"]}
SURROUNDINGS |= {"variables": found} if (found := environment.planned_variables(config["environment"])) else {}


def described(tool, cell, **more):
    """All that a collecting job goes by, as one JSON text with sorted keys."""
    job = {"tool": tool, "cell": cell, **SURROUNDINGS}
    job |= checked(data_files.summarise_data_set, cell) | checked(data_files.summarise_model_files, cell)
    return json.dumps(job | more, sort_keys=True)


def job_text(tool, phase=None, **more):
    """A params function: that text of the cell under a tool."""
    return lambda wildcards: described(tool, resolved(wildcards, tool, phase), **more)


# What runs all collecting jobs: it builds the tool's command line of the job, and leaves the sidecar. The locale is that
# in which tools print numbers and messages as they are read here.
COLLECT = "LC_ALL=C python -m profzoo.collect --job {params.job:q} --log {log:q} {params.more:q} {params.made:q}"


# The end of another rule's command, which has written each output with `.partial` behind its name: it puts them in their
# places, and leaves a record of what they were made of.
KEEP = " && python -m profzoo.records.keep --log {log:q} --input {input:q} --output {output:q}"


# Processes of each cell without a profiler, in a job's text where there are several.
REPEATED = {"repeats": config["repeats"]} if (config["repeats"] or 1) > 1 else {}


def in_turn(wildcards):
    """That text of a cell of which all sides of a comparison run in turn."""
    cells = {
        side.name: checked(settings.resolve_cell, side.of(wildcards.model), wildcards.phase, "time", config)
        for side in SIDES
    }
    baseline = cells[SIDES[0].name]
    seed = f"{baseline['seed']} {wildcards.model} {wildcards.phase} {sides.name_sides(SIDES)}"
    order = sides.interleave(list(cells), config["repeats"] or sides.REPEATS, seed)
    return described("time", baseline, sides=cells, order=order, order_seed=seed)


def loaded_in_turn(wildcards, input):
    """The words that name the weights which each side starts with, where there are such."""
    pairs = zip(SIDES, input.get("weights", []), strict=False)
    return [word for side, path in pairs for word in ("--weights", f"{side.name}={path}")]


def tried(wildcards):
    """That text of a cell on which settings are tried; it names no inputs, so that Snakemake sees when it changes."""
    known, refused = checked(candidate_settings.candidate_words, wildcards.model, wildcards.phase, config)
    expected = expected_gains().replace("<results>", RESULTS) if expected_gains() else ""
    # By sorted keys the panel's order would be lost.
    job = {"candidates": known, "order": list(known), "refused": refused, "expected": expected}
    job["budget_s"] = checked(job_limits.parse_seconds, config["trials"]["budget"], "trials.budget")
    job |= {key: config["trials"][key] for key in ("repeats", "most")}
    return described("time", resolved(wildcards, "time", None), trials=job)


def batches(wildcards):
    """Samples in a batch of each cell: advice names twice of them."""
    known = {cell: checked(settings.resolve_cell, *cell, "time", config) for cell in CELLS}
    return {f"{model} {phase}": own["batch"] for (model, phase), own in known.items()}


def made(wildcards, output):
    """The words that name what a collecting job makes."""
    return [f"{name}={path}" for name, path in output.items()]


def loaded(wildcards, input):
    """The words that name what a collecting job starts with: weights, and a plan, where there are such."""
    given = {"--load": input.get("weights"), "--plan": input.get("plan")}
    return [word for option, path in given.items() if path for word in (option, str(path))]


def trained(wildcards):
    """The settings of the training whose weights inference loads: on one GPU, and no longer than it has to be."""
    one = {"gpus": 1, "nodes": 1}
    alone = {
        part: {name: {key: changes[key] for key in changes if key not in one} for name, changes in config[part].items()}
        for part in ("settings", "variants")
    }
    shortest = config | alone | one | {"time": config["time"] | {"window": 1}}
    return checked(settings.resolve_cell, wildcards.model, "train", "time", shortest)


def of_several_gpus():
    """The wildcard constraints of cells that take several GPUs."""
    return {"model": any_of(SPREAD) or "no_cell", "phase": "train"}


def of_timed():
    """The wildcard constraints of cells under torch.profiler whose baseline is timed in the same process."""
    return {} if config["torch"]["baseline"] else {"model": "no_cell"}


def ncu_settings(wildcards):
    """The configuration's `ncu` for one section set of a cell."""
    return checked(ncu.adapt_to_cell, config["ncu"], wildcards.set, resolved(wildcards, "ncu", None))


def resolved(wildcards, tool, phase):
    """The settings of the cell; the phase comes from the wildcards unless given."""
    return checked(settings.resolve_cell, wildcards.model, phase or wildcards.phase, tool, config)


def sources(wildcards):
    """The files whose change means that a cell has to be collected again."""
    name, _ = settings.split_variant(wildcards.model)
    model = checked(registry.find_model, name, config["settings"].get(name, {}).get("module"))
    return inputs(checked(registry.source_files, model))


def weights(wildcards):
    """What inference loads: the weights that a training left, where the model has one."""
    return weights_of(wildcards.model, wildcards.get("phase", "inference"))


def weights_of(model, phase):
    """The same of a cell by its names."""
    trained = checked(settings.weights_source, model, phase, config)
    return f"<results>/{trained}/weights.pt" if trained else []


def census(wildcards):
    """Every launch of the window, from which a set that takes some of them has its counts."""
    name = wildcards.get("set", config["ncu"]["set"])
    if profiled(wildcards) in ("all", "ranges") or name == ncu.CENSUS:
        return []
    return f"<results>/{wildcards.model}/{wildcards.phase}{ncu_census.csv(counted_by_ncu(wildcards))}"


def untold(wildcards):
    """Why the trace of a cell does not tell its launches, so that ncu counts them itself; None where it does.

    That is known once they were exported. Of copied results, what came along says it. A dry run goes by what there is:
    nothing is ever exported in it, and Snakemake cannot plan several cells with checkpoints that never end.
    """
    if config["ncu"]["census"] != ncu_census.AUTO:
        return None
    if config["collect"] and not workflow.dryrun:
        checkpoints.export_launches.get(model=wildcards.model, phase=wildcards.phase)
    return checked(ncu_census.read_untold_reason, f"{RESULTS}/{wildcards.model}/{wildcards.phase}{ncu_census.TOLD}")


def counted_by_ncu(wildcards):
    """Whether ncu counts the launches of a cell itself, as configured or as its trace does not tell them."""
    return config["ncu"]["census"] == ncu_census.NCU or untold(wildcards) is not None


def joined_census(wildcards):
    """Likewise, for the counters that go into the kernel table."""
    return census(wildcards) if "ncu" in tools_of(wildcards) else []


def profiled(wildcards):
    """What a section set, or else the default one, profiles: `sampled` launches, `distinct` ones, `all`, the first N, or
    `ranges`."""
    name = wildcards.get("set", config["ncu"]["set"])
    return "ranges" if ncu.measures_ranges(config["ncu"], name) else ncu.launch_selection(config["ncu"], name)


def plan(wildcards):
    """The plan of a section set that has one."""
    made = f"<results>/{wildcards.model}/{wildcards.phase}.{wildcards.set}.plan.json"
    return made if ncu.needs_plan(config["ncu"], wildcards.set) else []


def unless_profiled(files):
    """An input function for what is a reason to plan a section set only until that has been profiled.

    Snakemake does not judge, in the same run, what takes as ancient a file that is made again, nor what comes after that
    (its issue 4166). So a plan of what was profiled is made again only where its settings change, on which the profiling
    job depends as well.
    """

    def found(wildcards):
        paths = files(wildcards) if callable(files) else files
        home = f"{RESULTS}/{wildcards.model}/{wildcards.phase}.{wildcards.set}"
        profiled = any(Path(f"{home}.{what}.json").exists() for what in ("ncu-rep", "ncu-ranks"))
        return ancient(paths) if profiled and paths else paths

    return found


def planned_by(wildcards):
    """The launches that a section set is planned by, and the sidecar of the report that has them; and what says why
    these are not the trace's, where that was to tell them."""
    home, by_ncu = f"<results>/{wildcards.model}/{wildcards.phase}", counted_by_ncu(wildcards)
    why = [f"{home}{ncu_census.TOLD}"] if by_ncu and config["ncu"]["census"] == ncu_census.AUTO else []
    return [f"{home}{ncu_census.csv(by_ncu)}", f"{home}{ncu_census.report_sidecar(by_ncu)}", *why]


def settled(wildcards):
    """What a section set that has a plan is collected by."""
    written = f"<results>/{wildcards.model}/{wildcards.phase}.{wildcards.set}.job.json"
    return written if ncu.needs_plan(config["ncu"], wildcards.set) else []


def ncu_job(wildcards):
    """All that a section set is collected by, as one JSON text."""
    options = checked(ncu.options, ncu_settings(wildcards), wildcards.set)
    cell = resolved(wildcards, "ncu", None)
    return described("ncu", cell, set=wildcards.set, options=options, planned=planned_options(wildcards))


def probe(wildcards):
    """What a probe says of a section set's cost, where its metrics are such as nobody measured: page and sidecar."""
    if not ncu_costs.lacks_cost(config["ncu"]["sets"][wildcards.set], ncu_costs.load_costs()):
        return []
    name = f"<results>/peaks/{config['gpu']}.{wildcards.set}"
    return [f"{name}.probe.csv", f"{name}.ncu-rep.json"]


def probe_job(wildcards):
    """All that a section set's probe goes by, as one JSON text."""
    cell = {"device": config["device"]}
    job = {"tool": "probe", "cell": cell, **SURROUNDINGS, "set": wildcards.set}
    return json.dumps(job | {"options": ncu_costs.probe_options(config["ncu"], wildcards.set)}, sort_keys=True)


def planned_options(wildcards):
    """What of the configuration a plan goes by; nothing for a section set that has none."""
    if not ncu.needs_plan(config["ncu"], wildcards.set):
        return {}
    keys = ("kernel_name", "launches", "replay", "budget")
    given = ncu_settings(wildcards)
    # The words as well, so that another choice of launches by the same settings is collected again.
    words = checked(ncu.selection_options, given, wildcards.set)
    sets = {wildcards.set: config["ncu"]["sets"][wildcards.set]}
    found = {**{key: given[key] for key in keys}, "sets": sets, "selection": words}
    if ncu.samples_launches(config["ncu"], wildcards.set):
        # Processes that talk to each other are started once.
        found |= {"error": given["error"], "one_run": process_count(resolved(wildcards, "ncu", None)) > 1}
    return found


def of_samples():
    """The wildcard constraints of section sets whose launches a plan chooses, for which ncu may run several times."""
    names = [name for name in config["ncu"]["sets"] if ncu.samples_launches(config["ncu"], name)]
    return {"set": any_of(names) or "no_set"}


def failed(dag, scheduler, told, said):
    """The jobs that failed; of a group, whose jobs share their fate, those that made nothing.

    told: what tells of the run, which knows those that its user ended, and that have not failed; said: what a batch
    system has said, by the jobs' numbers.
    """
    for job in scheduler.failed:
        for one in job.jobs if job.is_group() else [job]:
            if told and told.ended_by_user(one.jobid):
                continue
            if not (job.is_group() and one.output and all(Path(path).exists() for path in one.output)):
                described = one.params.get("job")
                files = list(map(str, one.output)), list(map(str, one.log))
                more = unrun(dag, one), said.get(one.jobid, "")
                yield failure_summary.Failure(one.rule.name, dict(one.wildcards_dict), described, *files, *more)


def unrun(dag, job):
    """The measurements that did not run because a job failed, as they are titled; what only follows them is not named."""
    after = [one for one in dag.bfs(dag.depending, job) if one is not job and "made" in one.params.keys()]
    waited = {one for one in after if dag.needrun(one) and not dag.finished(one)}
    return sorted(
        failure_summary.job_title(
            failure_summary.Failure(
                one.rule.name, dict(one.wildcards_dict), one.params.get("job"), list(one.output), []
            )
        )
        for one in waited
    )


def unfinished(dag):
    """The files that this run was to make, and did not."""
    return [str(path) for job in dag.needrun_jobs() if not dag.finished(job) for path in job.output]


def salvageable(dag, lost):
    """Whether a run was to make the report, and has not although there is something new to tell of."""
    over = (job for job in dag.needrun_jobs(exclude_finished=False) if dag.finished(job))
    new = any("made" in job.params.keys() for job in over)
    return bool(reports(dag)) and (bool(reported(dag, lost)) or new)


def reports(dag):
    """The jobs, one at most, that are to make the report and have not."""
    return [job for job in dag.needrun_jobs() if job.rule.name == "write_report" and not dag.finished(job)]


def reported(dag, lost):
    """Those of the failures for which the report waited; what else was asked for says nothing of what is in it."""
    needed = {path for job in dag.bfs(dag.dependencies, *reports(dag)) for path in job.output}
    return [one for one in lost if needed & set(one.outputs)]


def unmade(dag, scheduler):
    """How many jobs did not run, because of others that failed."""
    over = {one for job in scheduler.failed for one in (job.jobs if job.is_group() else [job])}
    return sum(not dag.finished(job) for job in dag.needrun_jobs() if job not in over)

"""The report page, results/report.html."""

"""The assembler's metrics."""

from prometheus_client import Counter, Gauge

IGNORED = Counter("rein_assembler_records_ignored_total", "Records that changed nothing, by reason", ["reason"])
GROUPS = Counter("rein_assembler_groups_total", "Groups ended, by state", ["state"])
FLAWED = Counter("rein_assembler_turns_set_aside_total", "Turns of rewarded rollouts not trained, by reason", ["code"])
UNOPENED = Counter("rein_assembler_groups_unopened_total", "Groups forgotten because they were never opened")
OPEN_GROUPS = Gauge("rein_assembler_groups_open", "Groups waiting for their members")
FENCED = Counter("rein_assembler_commits_fenced_total", "Commits that another member or a broker refused")

from gonogo.evidence.guarded.ends import have_all_ranks_joined, ranks_without_records, root_deaths
from gonogo.evidence.guarded.standstill import find_hang
from gonogo.evidence.guarded.whereabouts import innermost_user_frame
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.finding.ranks import capitalize_text, ranks_text
from gonogo.finding.text import join_texts
from gonogo.hazards.collective._store_barrier import store_barrier_messages
from gonogo.hazards.log_rule import match_in_evidence
from gonogo.hazards.rule import Certainty, Finding, Findings, GuardedRun, Hazard, translated


class RankNeverJoined(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """A store barrier that timed out before all processes had joined."""
        short = next((one for one in store_barrier_messages(log) if one.timed_out and one.joined < one.world), None)
        if short is not None:
            yield self._missing_processes_finding(short.evidence, short.joined, short.world, Certainty.LIKELY)
        elif (
            timeout := next(log.errors_of(says=self.patterns["client_timeout"]), None)
            or log.find(self.patterns["client_timeout"])
        ) and (match := match_in_evidence(self.patterns["client_timeout"], timeout)):
            yield self._missing_processes_finding(timeout, int(match.group(1)), int(match.group(2)), Certainty.POSSIBLE)

    def _missing_processes_finding(
        self, evidence: LoggedError | LineMatch, joined_count: int, world: int, certainty: Certainty
    ) -> Finding:
        """A finding about processes that had not joined the process group when the store barrier timed out."""
        return self.log_finding(
            evidence,
            translated("{joined} of {world} processes joined the rendezvous before the timeout.").format(
                joined=joined_count, world=world
            ),
            certainty=certainty,
            cure=(self.texts["start_all_nodes_cure"], self.texts["connectivity_cure"]),
            confirm=self.texts["confirm"],
        )

    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """Ranks without any record, and those that the others missed before the first step."""
        still = find_hang(run)
        stuck = still is not None or run.exit_status not in (None, 0)
        never = [] if have_all_ranks_joined(run) else ranks_without_records(run)
        missing = {rank for one in run.ranks if one.compared is not None for rank in one.compared.missing}
        late = [rank for rank in sorted(missing) if not _has_joined(run, rank)]
        if root_deaths(run) or not (stuck and (never or late)):
            return
        ranks = tuple(sorted({*never, *late}))
        waiting = run.ranks[0].compared
        known = [rank for rank in ranks if run.rank(rank) is not None]
        at = (
            innermost_user_frame(still.seen[known[0]].frames)
            if still is not None and known and known[0] in still.seen
            else None
        )
        yield self.finding(
            join_texts(
                (
                    (
                        translated("No process of {ranks} (of {world}) has written anything.")
                        if never
                        else translated(
                            "{ranks} of {world} started, but did not reach the first step within {seconds:.0f} s."
                        )
                    ).format(
                        ranks=ranks_text(ranks) if never else capitalize_text(ranks_text(ranks)),
                        world=run.world_size,
                        seconds=waiting.waited if waiting is not None else 0.0,
                    ),
                    translated("The process was at {place} in {function}.").format(
                        place=f"{at.path}:{at.line}", function=at.function
                    )
                    if at is not None
                    else translated("The other ranks can't begin without it."),
                ),
                " ",
                "",
            ),
            cure=(self.texts["start_all_nodes_cure"], self.texts["cure"], self.texts["connectivity_cure"]),
            ranks=ranks,
            confirm=translated("On the node where it should run, ps shows no such process, or one that is waiting"),
        )


def _has_joined(run: GuardedRun, number: int) -> bool:
    rank = run.rank(number)
    return rank is not None and (rank.last_step > 0 or (rank.joined is not None and not rank.stalls))

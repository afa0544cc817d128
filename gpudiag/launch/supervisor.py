"""The process that watches one server from its start to its end, whoever goes away meanwhile.

It has a session of its own, so that neither the loss of a terminal nor the end of `gpudiag launch` reaches it, and it never
ends the server but on request or when the server's root has ended. Evidence is taken by another process (evidence), which
is asked as soon as a process dies or stops, when a start goes silent, or when a request of one token stays unanswered.
What these looks say decides about the state; a timer never does.
"""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import IO, Final

import msgspec

from gpudiag.collect.deadline import Guard
from gpudiag.launch import history
from gpudiag.launch.carry_on import carry_on
from gpudiag.launch.counters import Counters
from gpudiag.launch.desk import Desk
from gpudiag.launch.ending import Ending
from gpudiag.launch.evidence import Told
from gpudiag.launch.leftovers import Leftovers
from gpudiag.launch.log_tail import LogTail
from gpudiag.launch.options import SuperviseOptions
from gpudiag.launch.phases import PhaseClock
from gpudiag.launch.pulse import StartWatch
from gpudiag.launch.run_directory import RunDirectory
from gpudiag.launch.serving import Door, ServingWatch
from gpudiag.launch.status import Situation, compiling, sentence, with_amount
from gpudiag.launch.taker import TakerProcess
from gpudiag.launch.tree import Tracked, Tree
from gpudiag.launch.weight_load import WeightLoad
from gpudiag.logs.engines.launch import SAW
from gpudiag.model.run import LaunchPlan, Phase, PhaseProgress, RunProgress, RunState
from gpudiag.model.server import Rank
from gpudiag.render.plain import clean

NAMES_EVERY_S: Final = 10.0
FILES_EVERY_S: Final = 60.0
TOGETHER_S: Final = 20.0
"""Deaths no further apart are one event: both engines end the rest of their tree within 10 s of the first."""
SETTLE_S: Final = 0.5
"""So long the rest of a server may take to follow its root before it counts as left behind."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor is told on its standard input: the whole plan, with secrets that stand in no file."""

    plan: LaunchPlan
    options: SuperviseOptions


class Supervisor:
    """One run."""

    def __init__(self, request: Request, child: subprocess.Popen[bytes], guard: Guard, errors: IO[bytes]) -> None:
        plan, options = request.plan, request.options
        self.plan = plan
        self.run = RunDirectory(Path(plan.run_directory))
        self.started_at = time.time()
        self.tree = Tree(child.pid, guard)
        self.taker = TakerProcess(self.run.path, errors)
        self.desk = Desk(plan, self.taker, child.pid, lambda: self.tree.tops)
        self.ending = Ending(self.tree, polite_s=options.polite_s)
        self.tail = LogTail(self.run.server_log)
        self.clock = PhaseClock(self.started_at, history.load(history.path_for(plan)))
        self.counters = Counters(self.tree, guard)
        self.start_watch = StartWatch(options.patience)
        self.serving = ServingWatch(Door(plan), canary=options.canary, idle_s=options.canary_idle_s, patience=options.patience)
        self.leftovers = Leftovers(guard, self.started_at)
        self.state: RunState = "starting"
        self.told: Told | None = None
        self.report: str | None = None
        self.notes: tuple[str, ...] = ()
        """What the log of a start that went well tells all the same: a class that stands in for the model's own."""
        self._child = child
        self._load: WeightLoad | None = None
        self._details: dict[Phase, PhaseProgress] = {}
        self._named_at = self._noted_at = time.monotonic()
        self._stopped: set[int] = set()
        self._maimed = False
        """Whether a rank failed: what still answers for the seconds that the engine takes to end does not go on."""
        self._death_at = self._fault_at = -TOGETHER_S
        self._root_ended_at: float | None = None
        self._last_words = False
        self._log_is_due = False

    @property
    def root(self) -> Tracked:
        return self.tree.all[self._child.pid]

    @property
    def over(self) -> bool:
        """Whether the server is gone, and everything about its end is on disk."""
        if not self.root.ended or not self.ending.over:
            return False
        return self.state == "stopped" or self._last_words

    def tick(self) -> None:
        """Look at everything once."""
        for gone in self.tree.look():
            self.died(gone)
        self._follow_log()
        self._name()
        self._notice_stopped()
        if self.root.ended:
            self._after_root()
        elif not self.ending.begun:
            if self.clock.current == "ready":
                self._watch_serving()
            else:
                self._watch_start()
        self.ending.step()
        self._note_files()
        self.write_progress()

    def died(self, tracked: Tracked) -> None:
        """A process of the server has ended."""
        now = time.monotonic()
        if tracked.pid == self._child.pid:
            self._child.returncode = tracked.status if tracked.status is not None else 0
            self._root_ended_at = now
            if now - self._fault_at > TOGETHER_S and self.state != "stalled":
                # It ended by itself; what hung before, and ended because of that, was looked at when it did.
                self._fault_at = now
        if self.ending.begun or not (tracked.main or tracked.role == "starting"):
            return
        self._maimed |= tracked.rank != Rank() and bool(tracked.status)
        first, self._death_at = now - self._death_at > TOGETHER_S, now
        if first and tracked.status:
            # Of the others nobody knows whether they died or were ended because of the first.
            self._write_event(tracked)
        if first and tracked.pid != self._child.pid and (tracked.main or tracked.status):
            self._fault_at = now
            self.desk.want("process-died")

    def asked_to_end(self, number: signal.Signals) -> None:
        """A signal that is meant for the server."""
        if not self.root.ended:
            self.state = "stopping"
        self.ending.ask(number)

    def told_by(self, told: Told) -> None:
        """Evidence was taken."""
        if told.why != "ready" or told.status == "finding":
            # An earlier report says nothing of what was seen now, and could not be kept.
            self.report = told.report or (None if told.unkept else self.report)
        if told.why == "ready":
            self.notes += (f"{told.code} {told.title}",) if told.code else ()
        elif told.why == "ended":
            self._last_words = True
            self.told = told
            self.state = self._end_state(told)
        elif self.root.ended or self.state in ("stopping", "stopped"):
            return
        elif told.hung:
            self.told = told
            if told.confidence != "weak" or not self.desk.busy:
                self.state = "stalled"
        elif self.state == "stalled":
            self._goes_on()

    def write_progress(self) -> None:
        current = self._details.get(self.clock.current) or self.clock.plain(self.clock.current)
        situation = Situation(
            state=self.state,
            now=time.time(),
            phase=current,
            serving=self.serving.serving,
            told=self.told,
            exit_status=self.root.status if self.root.ended else None,
            notes=(*self.notes, *((self.serving.note,) if self.serving.note else ())),
        )
        self.run.write_progress(
            RunProgress(
                run_id=self.plan.run_id,
                at=situation.now,
                state=self.state,
                phases=self.clock.phases(self._details),
                serving=self.serving.serving if self.clock.current == "ready" else None,
                exit_status=situation.exit_status,
                sentence=sentence(situation),
                code=self.told.code if self.told is not None and self.told.hung else None,
                report=self.report,
            )
        )

    def close(self) -> None:
        """Leave the directory and the machine as they should be once the server is gone."""
        self.taker.close()
        self.counters.close()
        self.tail.close()
        history.save(history.path_for(self.plan), self.clock.durations())
        removed = self.leftovers.remove() if not self.tree.alive else []
        if removed:
            self._say(f"gpudiag removed what the server left behind: {' '.join(removed)}")
        left = [t.name for t in self.tree.alive]
        if left:
            self._say(f"gpudiag could not end {', '.join(left)}: state D, or of another user")
        with carry_on():
            self.write_progress()

    def _follow_log(self) -> None:
        text = self.tail.read()
        if text:
            self.clock.read(text, time.time())
            self.leftovers.note_log(text)
        self.desk.ranks_joined = self.clock.began("weight-load") is not None

    def _name(self) -> None:
        now = time.monotonic()
        again = self.clock.current != "ready" and now - self._named_at >= NAMES_EVERY_S
        if again:
            self._named_at = now
        self.tree.name_members(again=again)

    def _notice_stopped(self) -> None:
        """A stop counts from its second look on: job control and tracers stop a process for a moment."""
        stopped = {t.pid for t in self.tree.alive if t.state == "T"}
        lasting = stopped & self._stopped
        if lasting and not self.ending.begun and not self.root.ended and self.state != "stalled" and not self.desk.busy:
            if self.clock.current == "ready":
                self.serving.knock()
            self.desk.want("process-stopped")
        self._stopped = stopped

    def _watch_start(self) -> None:
        loaded = self.counters.read()
        if self.clock.current == "weight-load":
            self._load = self._load or WeightLoad(loaded, self.plan.checkpoint_bytes)
            amount = self._load.amount(loaded, self.clock.shards)
            self._details["weight-load"] = with_amount(self.clock.plain("weight-load"), amount)
        elif (graphs := self.clock.graphs) is not None and self.clock.current == "graph-capture":
            self._details["graph-capture"] = msgspec.structs.replace(
                self.clock.plain("graph-capture"), done=graphs.done, total=graphs.total, unit="graphs"
            )
        else:
            # A kernel that is built when it is first used is logged by nobody; its compilers are seen.
            at_work = compiling([t.title for t in self.tree.alive if t.role == "compiler"])
            self._details[self.clock.current] = msgspec.structs.replace(self.clock.plain(self.clock.current), detail=at_work)
        why = self.start_watch.add(self.counters.pulse(loaded, self.tail.size))
        if why is not None:
            self.desk.want(why)
        elif self.state == "stalled" and self.start_watch.moved and not self._stopped:
            self._goes_on()
        if self.clock.listening or self.serving.listens(t.pid for t in self.tree.alive if t.main):
            self.clock.listening = True
            self._await_answer()

    def _await_answer(self) -> None:
        """Ready is who has answered: a door that is open and a model that hangs would not be."""
        if self.serving.probing and not self.serving.answered:
            self.serving.knock()
            if self.serving.step():
                self.desk.want("unanswered")
            return
        self.clock.enter("ready", time.time())
        self.counters.close()
        self.tree.name_members(again=True)
        self.leftovers.note([t.pid for t in self.tree.alive])
        if self.state == "starting":
            self.state = "serving"
        self._log_is_due = True

    def _watch_serving(self) -> None:
        if self._log_is_due and not self.desk.busy:
            self._log_is_due = False
            self.desk.want_log("ready")
        if self.serving.step():
            self.desk.want("unanswered")
        elif self.state == "stalled" and self.serving.well and not self._stopped and not self.desk.busy:
            self._goes_on()

    def _goes_on(self) -> None:
        if self._maimed:
            return
        self.told = None
        self.state = "serving" if self.clock.current == "ready" else "starting"

    def _after_root(self) -> None:
        """The root has ended: first the evidence, then an end for what it left, then the last words."""
        if self.ending.begun and self.state == "stopping":
            self.ending.end_rest()
            if self.ending.over:
                self.state = "stopped"
            return
        settled = self._root_ended_at is not None and time.monotonic() - self._root_ended_at > SETTLE_S
        if self.tree.alive and not settled:
            return
        left = any(t.main for t in self.tree.alive)
        if left and not self.desk.busy and not self.ending.begun and not self.desk.looked_since(self._fault_at):
            self.desk.want("process-died")
        if self.desk.busy:
            return
        if self.tree.alive:
            self.ending.end_rest()
        if self.ending.over and not self._last_words:
            self.desk.want_log("ended", fault_at=self._fault_at)

    def _end_state(self, told: Told) -> RunState:
        status = self.root.status
        if status == 0 and not told.hung:
            return "stopped"
        by_signal = (status is not None and status < 0) or told.code in ("GPD210", "GPD208")
        return "killed" if by_signal else "crashed"

    def _note_files(self) -> None:
        now = time.monotonic()
        due = FILES_EVERY_S if self.clock.current == "ready" else NAMES_EVERY_S
        if now - self._noted_at >= due and not self.root.ended:
            self._noted_at = now
            self.leftovers.note([t.pid for t in self.tree.alive if t.main or t.role in ("starting", "tracker")])

    def _write_event(self, tracked: Tracked) -> None:
        rank = tracked.rank.global_ if tracked.rank.global_ is not None else tracked.rank.tp
        name = tracked.name.partition(" (")[0].replace(" ", "-") or "process"
        of_rank = f", rank {rank}" if rank is not None else ""
        self._say(f"{SAW}{name} (pid {tracked.pid}{of_rank}) end with exit code {tracked.status}")

    def _say(self, text: str) -> None:
        with carry_on(), open(self.run.events_log, "a", encoding="utf-8", errors="backslashreplace") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} INFO {clean(text)}\n")

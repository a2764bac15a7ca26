"""Shared fixtures: the zygote, a job on it, and the guard that nothing is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.harness.disks import Disks
from tests.harness.job import Job, MakeJob
from tests.harness.zygote import Zygote

pytest.register_assert_rewrite("tests.survive.torture")  # its asserts fail with the values, as those of a test do

LAST_CHARACTERS = 4000


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows what the ranks and agents of its jobs have said last."""
    report = yield
    root = getattr(item, "funcargs", {}).get("tmp_path")
    if report.when == "call" and report.failed and root is not None:
        for log in sorted(Path(root).glob("*/*.log")):
            report.sections.append((str(log.relative_to(root)), log.read_text(errors="replace")[-LAST_CHARACTERS:]))
    return report


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """The process that forks trainers."""
    forker = Zygote()
    yield forker
    forker.close()


@pytest.fixture
def make_job(zygote: Zygote, tmp_path: Path) -> Iterator[MakeJob]:
    """Makes jobs below the test's directory; ends their processes and agents and frees their arenas afterwards."""
    jobs: list[Job] = []

    def make(name: str = "run", **settings: object) -> Job:
        jobs.append(Job(zygote, tmp_path / name, **settings))  # type: ignore[arg-type]
        return jobs[-1]

    yield make
    for job in jobs:
        job.clean()


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    """Mounts small file systems below the test's directory and unmounts them. Ask for it before `make_job`."""
    mounted = Disks(tmp_path)
    yield mounted
    mounted.close()


@pytest.fixture(scope="session")
def reference(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Job]]:
    """The run of `tests.programs.loop` that nothing happens to, by number of ranks; made once."""
    made: dict[int, Job] = {}

    def get(ranks: int = 1) -> Job:
        if ranks not in made:
            made[ranks] = Job(zygote, tmp_path_factory.mktemp("reference") / "run", ranks=ranks)
            made[ranks].start_agent()
            made[ranks].run()
        return made[ranks]

    yield get
    for job in made.values():
        job.clean()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No thread and no child process of this process outlives a test that made it."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 5
    while left := [t for t in threading.enumerate() if t not in before and t.is_alive() and not t.daemon]:
        assert time.monotonic() < deadline, f"threads left behind: {left}"
        time.sleep(0.01)  # a thread that is ending has no event we could wait on

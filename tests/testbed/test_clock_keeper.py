"""When the supervisor of the fast clock steps in, look by look."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm_testbed import PROGRAM

sys.path.insert(0, str(PROGRAM.parent))

from onehost.clockkeeper import PATIENCE, Watch
from onehost.forks import free, stuck_on

if TYPE_CHECKING:
    from pathlib import Path

WAITS_FOR_ITSELF = """
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *hold(void *seconds) {
    pthread_mutex_lock(&lock);
    sleep(atoi((const char *)seconds));
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(int count, char **words) {
    mmap(NULL, 4096, PROT_READ, MAP_SHARED, open(words[3], O_RDONLY), 0);
    pthread_t holder;
    pthread_create(&holder, NULL, hold, words[2]);
    usleep(200000);
    if (words[1][0] == 'f' && fork() > 0) { pthread_join(holder, NULL); return 0; }
    pthread_mutex_lock(&lock);
    puts("free");
    return 0;
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """``program fork|wait SECONDS FILE``: wait for a mutex that another thread holds, in a fork or here."""
    compiler = shutil.which("g++")
    assert compiler, "g++ comes with the packages of the tests"
    place = tmp_path / "program"
    argv = [compiler, "-x", "c++", "-pthread", "-o", str(place), "-"]
    subprocess.run(argv, input=WAITS_FOR_ITSELF, text=True, check=True)
    return place


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    (tmp_path / "clock").write_bytes(bytes(4096))
    return tmp_path / "clock"


def test_a_process_forked_while_the_lock_was_held_is_freed(program: Path, clock: Path) -> None:
    with subprocess.Popen([program, "fork", "1", clock], stdout=subprocess.PIPE, text=True) as process:
        process.wait()  # the child continues waiting for a lock that no process holds any more
        (stuck,) = stuck_on(clock)
        assert stuck_on(clock.with_name("another")) == frozenset()
        if not free(stuck):
            os.kill(stuck[0], 9)
            pytest.skip("this user may not write the memory of its own processes")
        assert process.stdout is not None
        assert process.stdout.read() == "free\n"


def test_a_thread_that_waits_for_another_is_left_alone(program: Path, clock: Path) -> None:
    with subprocess.Popen([program, "wait", "1", clock], stdout=subprocess.PIPE) as process:
        time.sleep(0.5)
        assert stuck_on(clock) == frozenset()
        assert process.communicate()[0] == b"free\n"


def test_a_holder_who_never_gives_it_back_is_given_up_on() -> None:
    watch = Watch()
    assert [watch.look(0) for _ in range(2 * PATIENCE)] == ([0] * (PATIENCE - 1) + [1]) * 2


@given(st.lists(st.integers(1, PATIENCE - 1)))
def test_holders_who_give_it_back_are_left_alone(stretches: list[int]) -> None:
    watch = Watch()
    for stretch in stretches:
        assert [watch.look(0) for _ in range(stretch)] == [0] * stretch
        assert watch.look(1) == 0


def test_one_given_up_on_who_lived_after_all_does_not_let_two_in() -> None:
    assert Watch().look(2) == -1

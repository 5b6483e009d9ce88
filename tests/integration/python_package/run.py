"""Scripts that join their job by the Python package, started by `lockstep run`, whose ranks are killed and stopped.

LOCKSTEP_CHAOS_FAULTS=100 makes test_random_faults long; LOCKSTEP_CHAOS_SEED chooses other faults.
"""
import os
import pathlib
import random
import signal

import ledger
from cases import expect
from local_run import logged
from package_run import RANKS, ScriptRun, alone, expect_exactly_once, final, repeated, slowly, training, until_steps
from train_run import BATCH, FAULTS, HERE, LONG, RANDOM_EPOCHS, SAMPLES, SEED, SHORT, TRAIN, TrainRun, expect_complete, harm

HELD = 15  # seconds: longer than the least bound of a step, 10 s, and the 2 s for an answer


def test_three_ranks_train_as_one_process(folder):
    with TrainRun(folder, SHORT) as run:
        expect_complete(run, folder, SHORT)


def test_survivors_keep_process_and_state(folder):
    with TrainRun(folder, LONG) as run:
        with slowly(folder):
            number = until_steps(run)
            for victim in (1, 0):  # 0: it serves the round's store, and the others take its state for the newest
                before = run.programs()
                os.kill(before[victim], signal.SIGKILL)
                number = until_steps(run, after=number)
                after = run.programs()
                expect(len(set(before) & set(after)) == RANKS - 1, f"other processes than the killed one were replaced: {before}, {after}")
        expect_complete(run, folder, LONG)
        sources = [record["state_from"] for record in logged(folder, "rank entered the round")]
        expect(sources.count("fresh") == RANKS and sources.count("peer") == 2, f"the ranks took their states from {sources}")
        expect(repeated(run.ledger) <= 2, f"{repeated(run.ledger)} finished steps were done again")


def test_a_scheduler_that_was_not_passed_to_join_is_named(folder):
    with TrainRun(folder, LONG, "forgets") as run:
        with slowly(folder):
            until_steps(run)
            os.kill(run.programs()[1], signal.SIGKILL)
            run.until("the mistake is named", lambda: "the learning rate differs between the ranks: it is 0.005 on this one" in run.output())


def test_a_rank_that_dies_while_ranks_connect_ends_no_other(folder):
    with ScriptRun(folder, HERE / "connects.py", LONG) as run:
        with slowly(folder):
            number = until_steps(run)
            before = run.programs()
            pathlib.Path(folder, "dies-connecting").touch()
            os.kill(before[1], signal.SIGKILL)
            until_steps(run, after=number)
            expect(len(set(before) & set(run.programs())) == 1, f"of {before}, two have died, and there are {run.programs()}")
        expect_complete(run, folder, LONG)
        sources = [record["state_from"] for record in logged(folder, "rank entered the round")]
        expect(sources.count("fresh") == RANKS and sources.count("peer") == 2, f"the ranks took their states from {sources}")


def test_a_new_worker_imports_before_it_joins(folder):
    """As a pod that replaces another one: the others train meanwhile."""
    with TrainRun(folder, LONG) as run:
        with slowly(folder):
            number = until_steps(run)
            before = run.programs()
            os.kill(run.workers()[2], signal.SIGKILL)
            run.until("the others train alone", lambda: len(ledger.newest_round(run.ledger)[1]) == RANKS - 1)
            alone_from = ledger.newest_commit(run.ledger)
            until_steps(run, after=number)
            expect(len(set(before) & set(run.programs())) == RANKS - 1, "other processes than those of the killed worker were replaced")
            entered = [record for record in logged(folder, "rank entered the round") if record["state_from"] == "peer"]
            expect(entered and entered[0]["step"] > alone_from + 2, f"the others waited for the new worker: {entered}, alone from step {alone_from}")
        expect_complete(run, folder, LONG)


def test_ranks_that_share_a_gpu_end_and_name_it(folder):
    with ScriptRun(folder, HERE / "shares_a_gpu.py", SHORT, ranks=2, minimum=2, sections={"failurePolicy": {"maxRestarts": 1}}) as run:
        expect(run.finish() != 0, "the job has succeeded")
    logs = "".join(path.read_text() for path in pathlib.Path(folder, "run").glob("*.log"))
    expect("several ranks of this job use the GPU GPU-1, and NCCL needs one for each rank" in logs, f"nothing is said of it: {logs[-4000:]}")


def test_all_ranks_lost_start_again(folder):
    with TrainRun(folder, LONG) as run:
        with slowly(folder):
            number = until_steps(run)
            for pid in run.programs():
                os.kill(pid, signal.SIGKILL)
            until_steps(run, after=number)
        run.finish()
        expect_complete(run, folder, LONG, wanted=final(folder, 0))  # they began with the weights of another rank


def test_a_stopped_rank_is_ended_and_the_others_continue(folder):
    with TrainRun(folder, LONG) as run:
        with slowly(folder):
            number = until_steps(run, more=10)  # its supervisor learns how long a step takes from 5 after the first
            before = run.programs()
            os.kill(before[2], signal.SIGSTOP)
            until_steps(run, after=number)
            expect(set(before[:2]) <= set(run.programs()), "other processes than the stopped one were replaced")
        expect_complete(run, folder, LONG)


def test_a_rank_that_holds_the_lock_of_the_interpreter_is_no_hang(folder):
    with TrainRun(folder, LONG) as run:
        with slowly(folder):
            until_steps(run)
            before, holds = run.programs(), pathlib.Path(folder, "holds-1")
            holds.with_suffix(".new").write_text(str(HELD))
            holds.with_suffix(".new").rename(holds)
            run.until("it holds it", lambda: not holds.exists())
            held_at = ledger.newest_commit(run.ledger)
            run.until("it has let go", lambda: ledger.newest_commit(run.ledger) > held_at + 3)
            expect(run.programs() == before, "a process was replaced")
        expect(not logged(folder, "rank hangs"), f"{logged(folder, 'rank hangs')}")


def test_a_slow_rank_is_named_and_starts_again(folder):
    computes = pathlib.Path(folder, "computes")
    computes.write_text("none")
    with ScriptRun(folder, TRAIN, LONG, sections={"healthPolicy": {"straggler": {"factor": 4, "windowSteps": 8, "action": "Restart"}}}) as run:
        with slowly(folder):
            number = until_steps(run)
            before = training(run)
            computes.write_text("1")
            run.until("the end of its process", lambda: before[1] not in run.programs())
            computes.unlink()
            until_steps(run, after=number)
            expect(set(before.values()) & set(run.programs()) == {before[0], before[2]}, f"rank 1 of {before} was slow, and there are {run.programs()}")
        # `lockstep run` may not have come to say it: the finding ended the round that it was of.
        left = [record["reason"] for record in logged(folder, "leaving the round") if "is a straggler" in record["reason"]]
        expect(len(left) == 1, f"left the round for it: {left}")
        expect_complete(run, folder, LONG)


def test_a_standby_takes_the_place_of_a_lost_rank(folder):
    with ScriptRun(folder, TRAIN, LONG, ranks=2, minimum=2, sections={"standbyReplicas": 1}) as run:
        with slowly(folder):
            run.until("the standby has imported everything, too", lambda: len(list(pathlib.Path(folder).glob("joins-*"))) == RANKS)
            number = until_steps(run, ranks=2)
            before, programs = training(run), set(run.programs())
            os.kill(before[1], signal.SIGKILL)
            until_steps(run, after=number, ranks=2)
            expect(set(training(run).values()) == programs - {before[1]}, f"of {programs}, {before} trained; now {training(run)}")
        expect_exactly_once(run, SAMPLES, BATCH, LONG)


def test_a_compiled_model_is_not_compiled_again(folder):
    def graphs():
        return {pid: pathlib.Path(folder, f"compiled-{pid}").read_text().splitlines().count("any rows") for rank, pid in before.items() if rank != 1}

    with TrainRun(folder, LONG, "compiles") as run:
        with slowly(folder):
            number = until_steps(run)
            before = training(run)
            compiled = graphs()
            expect(all(count > 0 for count in compiled.values()), "nothing was compiled")
            os.kill(before[1], signal.SIGKILL)
            until_steps(run, after=number)
            expect(graphs() == compiled, f"graphs of the survivors: {compiled} before, then {graphs()}")
        expect_complete(run, folder, LONG)


def test_the_scaler_of_gradients_is_the_same_on_all_ranks(folder):
    by_itself = pathlib.Path(folder, "alone")
    by_itself.mkdir()
    wanted = alone(by_itself, HERE / "scales.py", LONG)
    with ScriptRun(folder, HERE / "scales.py", LONG) as run:
        with slowly(folder):
            number = until_steps(run)
            os.kill(run.programs()[1], signal.SIGKILL)
            until_steps(run, after=number)
        expect_exactly_once(run, SAMPLES, BATCH, LONG)
    expect(wanted["scale"] != 1024, "the scale has not changed")
    for rank in range(RANKS):
        found = final(folder, rank)
        expect((found["steps"], found["scale"]) == (wanted["steps"], wanted["scale"]), f"rank {rank}: {found['steps']} steps, scale {found['scale']}")
        apart = max(abs(a - b) for a, b in zip(found["weights"], wanted["weights"]))
        expect(apart < 1e-3, f"rank {rank}: weights differ by {apart} from those of one process")
    unreadable = logged(folder, "unreadable message from a rank")
    expect(not unreadable, f"a loss that is not finite: {unreadable[:3]}")


def test_random_faults(folder):
    print(f"LOCKSTEP_CHAOS_SEED={SEED}")
    dice = random.Random(SEED)
    with TrainRun(folder, RANDOM_EPOCHS) as run:
        with slowly(folder):
            number = until_steps(run)
            for _ in range(FAULTS):
                harm(run, dice)
                number = until_steps(run, more=dice.randint(1, 5), after=number)
        expect_complete(run, folder, RANDOM_EPOCHS)


def test_a_process_ends_well_while_a_thread_returns_from_pytorch(folder):
    with ScriptRun(folder, HERE / "ends_late.py", ranks=1) as run:
        expect(run.finish() == 0, run.output()[-4000:])
    started = list(pathlib.Path(folder).glob("started-*"))
    expect(len(started) == 1, f"the script was started {len(started)} times\n{run.output()[-4000:]}")


def test_ends_in_good_order(folder):
    with TrainRun(folder, LONG) as run:
        with slowly(folder):
            until_steps(run)
            run.process.send_signal(signal.SIGTERM)
            code = run.finish()
        expect(code == 143, f"exit code {code}\n{run.output()[-4000:]}")
        expect(len(list(pathlib.Path(folder).glob("stopped-*"))) == RANKS, "not every script ended by lockstep.Stopped")

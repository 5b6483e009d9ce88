"""What tests/bench/gpu/overlap.py makes of a GPU's trace, in the format in which LibTorch's profiler writes it."""
import json
import pathlib
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS / "bench" / "gpu"))
import overlap  # noqa: E402
from cases import expect  # noqa: E402


def on_cpu(name, begin, milliseconds, category="user_annotation", thread=4321):
    return {"ph": "X", "cat": category, "name": name, "pid": 4321, "tid": thread, "ts": 1e3 * begin, "dur": 1e3 * milliseconds,
            "args": {"External id": 513, "Record function id": 0, "Ev Idx": 0}}


def kernel(name, begin, milliseconds, stream):
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": 1e3 * begin, "dur": 1e3 * milliseconds,
            "args": {"External id": 513, "queued": 0, "device": 0, "context": 1, "stream": stream, "correlation": 9001,
                     "registers per thread": 96, "shared memory": 0, "grid": [24, 1, 1], "block": [544, 1, 1]}}


STEPS = [on_cpu("ProfilerStep#7", 0, 20), on_cpu("ProfilerStep#8", 20, 10),
         {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#7", "pid": 0, "tid": 7, "ts": 500.0, "dur": 19000.0},
         {"ph": "M", "name": "process_name", "pid": 0, "ts": 0, "args": {"name": "lockstep-rank"}}]
NCCL, GEMM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT"


def read(*events):
    """[(step, ms of collectives, ms of them beside computation)] and what they are."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "steps-7-8-rank-0.json")
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*STEPS, *events]}))
        steps, words = overlap.read(path)
    return [(step.name, overlap.milliseconds(step.collectives), overlap.milliseconds_beside(step.collectives, step.computation))
            for step in steps], words


def test_kernels_of_nccl_beside_those_of_another_stream():
    # In step 7 the first sum lies within computation, the second outlasts it by 3 ms; in step 8 they take turns.
    steps, words = read(kernel(GEMM, 1, 5, 7), kernel(GEMM, 7, 4, 7), kernel(NCCL, 2, 3, 20), kernel(NCCL, 8, 6, 20),
                        kernel(GEMM, 21, 2, 7), kernel(NCCL, 23, 4, 20), kernel(GEMM, 27, 2, 7))
    expect(steps == [("ProfilerStep#7", 9, 6), ("ProfilerStep#8", 4, 0)], f"{steps}")
    expect(words == "NCCL's kernels on streams [20], others on [7]", words)


def test_time_counts_once_however_many_run():
    steps, _ = read(kernel(NCCL, 2, 4, 20), kernel(NCCL, 4, 4, 21), kernel(GEMM, 1, 4, 7), kernel(GEMM, 3, 4, 8))
    expect(steps == [("ProfilerStep#7", 6, 5), ("ProfilerStep#8", 0, 0)], f"{steps}")


def test_a_sum_that_two_steps_share_is_divided():
    steps, _ = read(kernel(NCCL, 18, 5, 20), kernel(GEMM, 19, 2, 7))
    expect(steps == [("ProfilerStep#7", 2, 1), ("ProfilerStep#8", 3, 1)], f"{steps}")


def test_numbers_that_gloo_sums_beside_nccl_are_left_out():
    steps, _ = read(on_cpu("gloo:all_reduce", 1, 15, thread=4399), kernel(NCCL, 2, 3, 20), kernel(GEMM, 1, 3, 7))
    expect(steps == [("ProfilerStep#7", 3, 2), ("ProfilerStep#8", 0, 0)], f"{steps}")


def test_gloo_beside_kernels_where_there_is_no_nccl():
    steps, words = read(on_cpu("gloo:all_reduce", 1, 5, thread=4399), kernel(GEMM, 4, 3, 7), on_cpu("aten::mm", 1, 5, "cpu_op"))
    expect(steps == [("ProfilerStep#7", 5, 2), ("ProfilerStep#8", 0, 0)] and words == "Gloo's sums beside kernels", f"{steps} {words}")


def test_gloo_beside_operators_of_the_thread_that_trains():
    steps, _ = read(on_cpu("gloo:all_reduce", 1, 9, thread=4399), on_cpu("aten::mm", 2, 3, "cpu_op"), on_cpu("aten::mm", 4, 3, "cpu_op", 4400),
                    on_cpu("c10d::allreduce_", 6, 1, "cpu_op"))
    expect(steps == [("ProfilerStep#7", 9, 3), ("ProfilerStep#8", 0, 0)], f"{steps}")

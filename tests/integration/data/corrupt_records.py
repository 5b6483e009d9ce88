"""`data.onCorruptRecord`: Fail names the record; with Skip the other samples alone count, each once."""
import pathlib
import re

import checkpoints
import ledger
from cases import expect
from local_run import Run, manifest
from run import write_images

IMAGES, BATCH, EPOCHS = 22, 4, 3  # the last step of an epoch has two samples
CORRUPT = (3, 4, 11)
LOSS = re.compile(r'(?m)^{"rank".*"loss":([0-9.e+-]+),"accuracy":([0-9.e+-]+)')  # of the rank; its supervisor says it again


def write_folder(folder, corrupt=CORRUPT):
    """Returns the paths of the corrupt images; those of the test set are one more."""
    write_images(folder, IMAGES)
    paths = [folder / "train" / str(i % 2) / f"{i}.png" for i in corrupt] + [folder / "test" / "1" / "5.png"]
    for i, path in enumerate(paths):
        path.write_bytes(path.read_bytes()[:45] if i % 2 == 0 else b"no image")
    return paths


def write_tables(folder, corrupt):
    """The corrupt lines are not numbers; those that are absent leave no trace."""
    folder.mkdir()
    row = lambda i: f"{i % 7},{i % 5 - 2}.5,{i % 2}"
    for part, count in (("train", IMAGES), ("test", 8)):
        rows = [corrupt(i, row(i)) if i in CORRUPT else row(i) for i in range(count)]
        (folder / f"{part}.csv").write_text("\n".join(["a,b,label", *filter(None, rows)]) + "\n")


def job(folder, data, replicas, **training):
    data = {"imageFolder": {"imageSize": 8}, **data} if data["format"] == "imageFolder" else {"csv": {"labelColumn": "label"}, **data}
    return manifest(folder, replicas=replicas, minimum=replicas, **{
        "data": data, "model": {"name": "mlp", "mlp": {"hiddenSizes": [16]}}, "optimizer": {"name": "adamw", "learningRate": 0.01},
        "globalBatchSize": BATCH, "epochs": EPOCHS, "evaluation": {"everyEpochs": 1}, **training})


def ends(folder, name, data, replicas=1, code=0, **training):
    """The run's output, and the logs of its processes."""
    place = pathlib.Path(folder) / name
    place.mkdir()
    with Run(place, job(place, data, replicas, **training)) as run:
        got = run.finish()
        expect(got == code, f"exit code {got}, not {code}\n{run.output()[-4000:]}")
        return run.output() + "".join(path.read_text() for path in sorted((place / "run").glob("*.log")))


def weights(folder, name):
    return checkpoints.digest_of_tensors(checkpoints.newest(pathlib.Path(folder) / name / "checkpoints")[1])


def totals(output):
    return re.findall(r'"corrupt records skipped in the epoch that ends".*"records":(\d+)', output)


def test_names_the_file_by_default(folder):
    images = pathlib.Path(folder) / "images"
    paths = write_folder(images, CORRUPT[:1])
    output = ends(folder, "fail", {"format": "imageFolder", "path": str(images)}, 2, code=3)
    expect(f"spec.training.data.path: {paths[0]} is damaged" in output, output[-4000:])


def test_skips_and_counts_each_in_any_world(folder):
    images = pathlib.Path(folder) / "images"
    paths = write_folder(images)
    data = {"format": "imageFolder", "path": str(images), "onCorruptRecord": "Skip"}
    digests = set()
    for world in (1, 2):
        output = ends(folder, f"world-{world}", data, world, determinism="World")
        problems = ledger.check_exactly_once(f"{folder}/world-{world}/ledger", IMAGES, BATCH, EPOCHS)
        expect(not problems, "; ".join(problems))
        expect(totals(output) == [str(len(CORRUPT))] * EPOCHS, f"{totals(output)}\n{output[-4000:]}")
        expect(output.count("corrupt records skipped in the evaluation") == EPOCHS, output[-4000:])
        for path in paths:
            named = output.count(f'"record":"{path}"')
            expect(1 <= named <= world, f"{path} is named {named} times by {world} processes")
        digests.add(weights(folder, f"world-{world}"))
    expect(len(digests) == 1, f"weights differ: {digests}")


def test_learns_what_it_would_without_them(folder):
    """In one step for each epoch, in the order of the files: other samples than the corrupt ones come in the same one."""
    place = pathlib.Path(folder)
    write_folder(place / "with-images")
    write_images(place / "without-images", IMAGES)
    for i in CORRUPT:
        (place / "without-images" / "train" / str(i % 2) / f"{i}.png").unlink()
    (place / "without-images" / "test" / "1" / "5.png").unlink()
    write_tables(place / "with-tables", lambda i, row: f"{row},9" if i % 2 else f"word,{row[2:]}")
    write_tables(place / "without-tables", lambda i, row: "")
    for kind, name in (("imageFolder", "images"), ("csv", "tables")):
        results = []
        for which, count in (("with", IMAGES), ("without", IMAGES - len(CORRUPT))):
            data = {"format": kind, "path": str(place / f"{which}-{name}"), "shuffle": False,
                    "onCorruptRecord": "Skip" if which == "with" else "Fail"}
            output = ends(folder, f"{which}-{kind}", data, globalBatchSize=count)
            evaluations = LOSS.findall(output)
            expect(len(evaluations) == EPOCHS, output[-4000:])
            results.append((weights(folder, f"{which}-{kind}"), evaluations))
        expect(results[0] == results[1], f"{kind}: {results}")


def test_needs_a_good_sample_in_each_step(folder):
    images = pathlib.Path(folder) / "images"
    write_folder(images, range(0, IMAGES, 2))
    data = {"format": "imageFolder", "path": str(images), "onCorruptRecord": "Skip", "shuffle": False}
    output = ends(folder, "run", data, 2, code=3)
    expect("all 4 samples of step 0 are corrupt" in output, output[-4000:])

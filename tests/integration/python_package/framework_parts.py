"""The integrations of frameworks, in one process; frameworks.py starts it in an interpreter that has them."""
import lightning
import pytest
import torch
import transformers

import lockstep
import lockstep.lightning
import lockstep.transformers
from lockstep.evaluation import Evaluations
from lockstep.frameworks import does_nothing
from with_lightning import Linear
from with_trainer import Counting

MICRO, BATCH, SAMPLES = 4, 8, 20
STEPS = 6  # two epochs


def trainer(folder, data=None, evaluated=None, **arguments):
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=31, n_positions=16, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0))
    return transformers.Trainer(model, transformers.TrainingArguments(**{
        "output_dir": str(folder), "num_train_epochs": 2, "per_device_train_batch_size": MICRO, "use_cpu": True, "report_to": "none", "disable_tqdm": True,
        "save_strategy": "no", **arguments}), train_dataset=data or Counting(SAMPLES), eval_dataset=evaluated)


def updates_of(optimizer):
    return {int(state["step"]) for state in optimizer.state.values()}


def finish_elsewhere(job, monkeypatch):
    """The step under way fails as if another rank had left the round; the state of a rank that has finished it has arrived."""
    def survives(_):
        job._averaging.step = None
        job._state.step += 1
        return True
    monkeypatch.setattr(job, "survives", survives)


class FailsOnce:
    def __init__(self, monkeypatch, elsewhere):
        self.calls, self.monkeypatch, self.elsewhere = 0, monkeypatch, elsewhere

    def __call__(self, job):
        self.calls += 1
        if self.calls != 5:  # the first micro-batch of the third step
            return
        if self.elsewhere:
            finish_elsewhere(job, self.monkeypatch)
        else:
            self.monkeypatch.setattr(job, "survives", lambda _: True)
        raise RuntimeError("a rank has left the round")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_trainer_repeats_a_step_or_skips_what_another_rank_has_finished(tmp_path, monkeypatch, elsewhere):
    fails = FailsOnce(monkeypatch, elsewhere)

    class Mine(transformers.Trainer):
        def compute_loss(self, *args, **kwargs):
            fails(self.job)
            return super().compute_loss(*args, **kwargs)
    mine = trainer(tmp_path, evaluated=Counting(5), eval_strategy="steps", eval_steps=1)
    mine.__class__ = Mine
    lockstep.transformers.attach(mine, global_batch_size=BATCH)
    done = mine.train()
    made = STEPS - 1 if elsewhere else STEPS
    assert (done.global_step, mine.job.finished_steps) == (STEPS, STEPS)
    assert mine.lr_scheduler.last_epoch == made and updates_of(mine.optimizer) == {made}
    assert [each["step"] for each in mine.state.log_history if "eval_loss" in each] == list(range(1, STEPS + 1))


def test_trainer_counts_steps_that_others_have_finished_without_it(tmp_path):
    """As in a round that they formed while this rank could not be reached."""
    class Later(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 2:
                mine.job._state.step += 3  # beyond the end of the epoch
    mine = trainer(tmp_path, evaluated=Counting(5), eval_strategy="epoch", logging_steps=1)
    lockstep.transformers.attach(mine, global_batch_size=BATCH)
    mine.add_callback(Later())
    done = mine.train()
    assert (done.global_step, mine.job.finished_steps) == (STEPS, STEPS)
    assert mine.lr_scheduler.last_epoch == STEPS - 3 and updates_of(mine.optimizer) == {STEPS - 3}
    assert [each["step"] for each in mine.state.log_history if "loss" in each] == list(range(1, STEPS + 1))
    assert [each["step"] for each in mine.state.log_history if "eval_loss" in each] == [STEPS // 2, STEPS]


def test_a_step_that_arrives_in_an_evaluation_has_changed_the_scheduler_already(tmp_path):
    class Later(transformers.TrainerCallback):
        def on_prediction_step(self, args, state, control, **_):
            if state.global_step == mine.job.finished_steps == 2:
                mine.job._state.step += 1
    mine = trainer(tmp_path, evaluated=Counting(5), eval_strategy="steps", eval_steps=1, lr_scheduler_type="reduce_lr_on_plateau", metric_for_best_model="loss")
    lockstep.transformers.attach(mine, global_batch_size=BATCH)
    mine.add_callback(Later())
    mine.train()
    assert mine.job.finished_steps == STEPS and mine.lr_scheduler.last_epoch == STEPS - 2  # not by the results after steps 2 and 3


@pytest.mark.parametrize("elsewhere", [False, True])
def test_lightning_repeats_a_step_or_skips_what_another_rank_has_finished(tmp_path, monkeypatch, elsewhere):
    fails = FailsOnce(monkeypatch, elsewhere)

    class Mine(Linear):
        def training_step(self, batch, index):
            fails(self.trainer.strategy.job)
            return super().training_step(batch, index)

        def on_train_batch_end(self, *_):
            pass
    strategy = lockstep.lightning.LockstepStrategy(global_batch_size=BATCH)
    mine = lightning.Trainer(strategy=strategy, max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                             enable_model_summary=False, default_root_dir=tmp_path)
    mine.fit(Mine(), points())
    made = STEPS - 1 if elsewhere else STEPS
    assert (mine.global_step, strategy.job.finished_steps) == (STEPS, STEPS)
    assert mine.lr_scheduler_configs[0].scheduler.last_epoch == made and updates_of(mine.optimizers[0]) == {made}


def test_lightning_counts_steps_that_others_have_finished_without_it(tmp_path):
    class Mine(Linear):
        def on_train_batch_end(self, *_):
            if self.trainer.global_step == 2:
                strategy.job._state.step += 3  # beyond the end of the epoch

        def on_validation_end(self):
            validated.append(self.trainer.global_step)
    validated = []
    strategy = lockstep.lightning.LockstepStrategy(global_batch_size=BATCH)
    mine = lightning.Trainer(strategy=strategy, max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                             enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=tmp_path)
    mine.fit(Mine(), points(), points(shuffle=False))
    made = STEPS - 3
    assert (mine.global_step, strategy.job.finished_steps) == (STEPS, STEPS)
    assert mine.lr_scheduler_configs[0].scheduler.last_epoch == made and updates_of(mine.optimizers[0]) == {made}
    assert validated == [STEPS // 2, STEPS]


def points(**options):
    data = torch.utils.data.TensorDataset(torch.rand(SAMPLES, 32), torch.randint(2, (SAMPLES,)))
    return torch.utils.data.DataLoader(data, **{"batch_size": MICRO, "shuffle": True, **options})


def test_the_trainers_evaluations_are_divided_if_only_the_loss_is_wanted(tmp_path, monkeypatch):
    def evaluations(**options):
        mine = trainer(tmp_path, evaluated={"some": Counting(5), "more": Counting(6)}, eval_strategy="epoch", eval_on_start=True,
                       per_device_eval_batch_size=2)
        vars(mine).update(options)
        lockstep.transformers.attach(mine, global_batch_size=BATCH)
        shared = []
        evaluate = Evaluations.evaluate
        monkeypatch.setattr(Evaluations, "evaluate", lambda *args: shared.append(args) or evaluate(*args))
        mine.train()
        monkeypatch.undo()
        plain = transformers.Trainer.evaluation_loop(mine, mine.get_eval_dataloader("more"), "Evaluation", True).metrics["eval_loss"]
        assert mine.state.log_history[-2]["eval_more_loss"] == pytest.approx(plain)
        return len(shared)

    assert evaluations() == 6  # at the start and after two epochs
    assert evaluations(compute_metrics=lambda found: {"samples": len(found.predictions)}) == 0


class WithoutLabels(Counting):
    def __getitem__(self, index):
        return {"input_ids": super().__getitem__(index)["input_ids"]}


def test_a_divided_evaluation_informs_the_optimizer_and_needs_no_labels(tmp_path):
    mine = trainer(tmp_path, evaluated=WithoutLabels(5), eval_strategy="epoch")
    lockstep.transformers.attach(mine, global_batch_size=BATCH)
    mine.create_optimizer()
    said = []
    mine.optimizer.eval, mine.optimizer.train = lambda: said.append("eval"), lambda: None  # as one without a schedule has them
    mine.train()
    assert said == ["eval"] * 2
    assert not any("eval_loss" in each for each in mine.state.log_history)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize("arguments, message", [
    ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps=2: leave it out"),
    ({"auto_find_batch_size": True}, "not supported with lockstep.transformers.attach: auto_find_batch_size"),
    ({"data": Stream(), "max_steps": 3}, "an IterableDataset have no positions"),
])
def test_mistakes_with_trainer_are_named(tmp_path, arguments, message):
    with pytest.raises(lockstep.LockstepError, match=message):
        lockstep.transformers.attach(trainer(tmp_path, **arguments), global_batch_size=BATCH)


def test_an_order_that_cannot_be_divided_is_named(tmp_path):
    mine = trainer(tmp_path, train_sampling_strategy="group_by_length")
    lockstep.transformers.attach(mine, global_batch_size=BATCH)
    with pytest.raises(lockstep.LockstepError, match="the order of a LengthGroupedSampler cannot be divided among ranks"):
        mine.train()


@pytest.mark.parametrize("arguments, loader, message", [
    ({"accumulate_grad_batches": 2}, {}, "accumulate_grad_batches=2: leave it out"),
    ({"limit_train_batches": 2}, {}, "not supported with LockstepStrategy: limit_train_batches"),
    ({"max_epochs": -1}, {}, "needs max_epochs or max_steps"),
    ({}, {"batch_size": None}, "a DataLoader with a batch_size"),
])
def test_mistakes_with_lightning_are_named(tmp_path, arguments, loader, message):
    mine = lightning.Trainer(**{"strategy": lockstep.lightning.LockstepStrategy(global_batch_size=BATCH), "max_epochs": 1, "accelerator": "cpu", "logger": False,
                                "enable_checkpointing": False, "default_root_dir": tmp_path, **arguments})
    with pytest.raises(lockstep.LockstepError, match=message):
        mine.fit(Linear(), points(**loader, **({"shuffle": False} if loader else {})))


def test_a_start_by_torchrun_is_named(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(lockstep.LockstepError, match="start the script with `lockstep run` or as a job, not with torchrun"):
        lockstep.lightning.LockstepStrategy(global_batch_size=BATCH)


def test_a_method_that_does_nothing_is_there_again():
    class Counter:
        count = 0

        def step(self):
            self.count += 1
    counter = Counter()
    with does_nothing(counter, "step"):
        counter.step()
    counter.step()
    assert counter.count == 1 and "step" not in vars(counter)

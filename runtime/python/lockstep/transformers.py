"""Hugging Face's Trainer as a rank of an elastic job, by two lines more in its script.

    import lockstep.transformers                                     # before TrainingArguments are made

    trainer = transformers.Trainer(model, arguments, train_dataset=data)
    lockstep.transformers.attach(trainer, global_batch_size=256)
    trainer.train()

The Trainer behaves as in a single process, and calls `training_step` once for each step. There all micro-batches of this rank run as a transaction,
which is repeated with the new share of this rank after the loss of another one. What the Trainer does next (clipping, optimizer, scheduler) needs no
other rank. The step counts when it calls `on_step_end`.
"""
from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import typing

import accelerate  # type: ignore[import-untyped]
import torch
import transformers
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import EvalLoopOutput

from lockstep.batches import Batch
from lockstep.control import SOCKET
from lockstep.errors import LockstepError
from lockstep.frameworks import Schedule, ShareLoader, arguments_of, does_nothing, reads_each_sample_once, without_sync
from lockstep.job import Job
from lockstep.joining import join
from lockstep.step import Step

_FOUND_BY = ("LOCAL_RANK", "WORLD_SIZE")  # by these Accelerate notices other ranks
# Of TrainerState: they differ between ranks, or have a form of their own here.
_NOT_SHARED = ("is_local_process_zero", "is_world_process_zero", "stateful_callbacks")


def attach(trainer: transformers.Trainer, *, global_batch_size: int) -> None:
    """Makes `trainer.train()` continue in this process when other ranks are lost or added; alone, it trains as one process.

    `global_batch_size`: samples of one optimizer step over all ranks, whatever their number. `per_device_train_batch_size` is the size of a
    micro-batch, and each rank accumulates as many of them as its share of the step needs.

    Examples:
        >>> trainer = transformers.Trainer(model, arguments, train_dataset=data)
        >>> lockstep.transformers.attach(trainer, global_batch_size=256)
        >>> trainer.train()
    """
    if not isinstance(trainer, transformers.Trainer):
        raise LockstepError(f"attach needs a transformers.Trainer, not {type(trainer).__name__}")
    if isinstance(trainer, _ElasticTrainer):
        raise LockstepError("attach was called twice for the same Trainer")
    if global_batch_size < 1:
        raise LockstepError(f"global_batch_size must be at least 1, not {global_batch_size}")
    _check(trainer)
    kind = type(trainer)
    trainer.__class__ = type(kind.__name__, (_ElasticTrainer, kind), {})
    typing.cast(_ElasticTrainer, trainer)._begin(global_batch_size)


def _check(trainer: transformers.Trainer) -> None:
    args, state = trainer.args, trainer.accelerator.state
    unsupported = {
        "fsdp": bool(args.fsdp) or trainer.is_fsdp_enabled, "deepspeed": trainer.is_deepspeed_enabled,
        "parallelism_config": args.parallelism_config is not None, "fp16 (bf16 is supported)": args.fp16,
        "auto_find_batch_size": args.auto_find_batch_size, "torch_compile (call model.compile() instead)": args.torch_compile,
        "include_num_input_tokens_seen": args.include_num_input_tokens_seen != "no", "a model on several devices": trainer.is_model_parallel}
    found = [name for name, is_set in unsupported.items() if is_set]
    if found:
        raise LockstepError(f"not supported with lockstep.transformers.attach: {', '.join(found)}")
    if args.gradient_accumulation_steps != 1:
        raise LockstepError(f"gradient_accumulation_steps={args.gradient_accumulation_steps}: leave it out. The number of micro-batches follows from "
                            "global_batch_size, per_device_train_batch_size and the number of ranks")
    if state.num_processes != 1:
        raise LockstepError("the Trainer has a process group of its own: import lockstep.transformers before TrainingArguments are made, and start the "
                            "script with `lockstep run` or as a job, not with torchrun or accelerate launch")
    if args.n_gpu > 1:
        raise LockstepError(f"this process sees {args.n_gpu} GPUs, for which Trainer would use DataParallel: set CUDA_VISIBLE_DEVICES to one of them")
    if isinstance(trainer.train_dataset, torch.utils.data.IterableDataset):
        raise LockstepError("the samples of an IterableDataset have no positions, so they cannot be divided: train_dataset needs __len__ and __getitem__")


class _Loader(ShareLoader):
    def __init__(self, trainer: _ElasticTrainer, loader: torch.utils.data.DataLoader[typing.Any], **order: typing.Any) -> None:
        super().__init__(loader, micro_batch_size=trainer.args.per_device_train_batch_size, drop_last=trainer.args.dataloader_drop_last, **order)
        self._trainer, self.epoch = trainer, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> typing.Iterator[Batch]:
        return self.of_epoch(self.epoch, lambda: self._trainer.state.global_step)


class _ElasticTrainer(transformers.Trainer):
    """What a Trainer becomes by `attach`. Its methods are those that Trainer's manual names for overriding, except where a comment says why."""

    def _begin(self, global_batch_size: int) -> None:
        self.job: Job | None = None
        self._global_batch_size = global_batch_size
        self._flow = _Flow(self)
        self._progress = _Progress(self)
        self._under_way: contextlib.ExitStack | None = None  # the step, from its backward pass to on_step_end
        self._reported: Step | None = None
        self._schedule: Schedule | None = None
        self.callback_handler.callbacks.insert(0, self._flow)
        self.args.ignore_data_skip = True  # the loader begins with the step that follows the last one
        self.accelerator.backward = functools.partial(self._backward, self.accelerator.backward)

    def train(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if self.job is not None:
            raise LockstepError("train() can be called only once after lockstep.transformers.attach")
        try:
            return super().train(*args, **kwargs)
        except Exception as error:
            if self._under_way is not None and self.job is not None:
                self.job.fails(error)
            raise

    def join(self) -> None:
        """When the model, the optimizer and the scheduler are there, and a checkpoint is loaded if one was named."""
        model, optimizer, scheduler = self.model, self.optimizer, self.lr_scheduler
        assert model is not None and optimizer is not None and scheduler is not None
        while isinstance(optimizer, accelerate.optimizer.AcceleratedOptimizer):
            optimizer = optimizer.optimizer
        ddp = self.accelerator.ddp_handler.to_kwargs() if self.accelerator.ddp_handler is not None else {}
        before = self.state.global_step
        self.job = join(model, optimizer, scheduler, self._progress, step=before, ddp=ddp)
        self._progress.is_complete = True
        self._loader.begin(self.job, self.state.max_steps)
        if self.job.finished_steps > before:
            self.args.eval_on_start = False  # the others have done so
        self._take_rank(self.job)

    def _take_rank(self, job: Job) -> None:
        """It decides who logs and saves."""
        self.args.distributed_state.process_index = job.rank
        self.state.is_world_process_zero = job.rank == 0
        self.state.is_local_process_zero = self.args.local_process_index == 0

    def get_train_dataloader(self) -> typing.Any:
        loader = super().get_train_dataloader()
        if not self.is_in_train:
            return loader
        args = self.args
        self._loader = _Loader(self, loader, global_batch_size=self._global_batch_size, seed=args.seed if args.data_seed is None else args.data_seed)
        return self._loader

    def get_total_train_batch_size(self, args: transformers.TrainingArguments) -> int:
        return self._global_batch_size

    def get_batch_samples(self, epoch_iterator: typing.Iterator[Batch], num_batches: int, device: torch.device) -> tuple[list[Batch], None]:
        if self._schedule is not None:
            self._schedule.restore()
            self._schedule = None
        batches = list(itertools.islice(epoch_iterator, 1))
        assert self.job is not None
        self._take_rank(self.job)
        return batches, None

    def training_step(self, model: torch.nn.Module, inputs: typing.Any, num_items_in_batch: typing.Any = None) -> torch.Tensor:
        assert self.job is not None
        batch: Batch = inputs
        self._progress.step_begins()
        while self.job.finished_steps == inputs.step:
            with contextlib.ExitStack() as stack:
                step = stack.enter_context(self.job.step())
                self._progress.loss = self._run_micro_batches(self.job, step, batch)
                self._under_way = stack.pop_all()
                return self._mean_loss()
            again = self._loader.read()
            self._take_rank(self.job)
            batch = again or batch
        self._under_way = self._without_update()
        return self._mean_loss()

    def _mean_loss(self) -> torch.Tensor:
        """Over the global batch, so all ranks log the same."""
        return torch.tensor(self._progress.loss, device=self.args.device)

    def _run_micro_batches(self, job: Job, step: Step, batch: Batch) -> float:
        _, items = super().get_batch_samples(iter(batch.data), len(batch.data), self.args.device)
        if items is not None and self.args.average_tokens_across_devices:
            # The gradients are multiplied by the weight when they are added up, but this loss is divided by the tokens of all ranks.
            total = step.total(float(items) if batch.ids else 0.0)
            items = torch.tensor(total * batch.weight if batch.ids else 1.0, device=self.args.device)
        self._reported = step if batch.ids else None  # the loss of a sample that counts nothing may be NaN
        for micro_batch, part, is_last in self._loader.micro_batches(batch):
            self.current_gradient_accumulation_steps = 1 / part  # type: ignore[assignment]  # Trainer divides a mean over the micro-batch by it
            with without_sync(job, is_last):
                super().training_step(job.model, micro_batch, items)
        return step.mean_loss()

    def _backward(self, backward: typing.Callable[..., None], loss: torch.Tensor, **kwargs: typing.Any) -> None:
        """In place of Accelerator's: the one point at which the loss is known before its gradients are added up."""
        if self._reported is not None:
            self._reported.report(self._reported.loss + float(loss.detach()))
        backward(loss, **kwargs)

    def _without_update(self) -> contextlib.ExitStack:
        """For a step that another rank has finished, whose state this one has received: the Trainer counts it, and logs, evaluates and saves what is due."""
        assert self.optimizer is not None
        schedule = Schedule(self.optimizer, [self.lr_scheduler])
        assert self.job is not None
        if self.state.global_step + 1 < self.job.finished_steps or not self._progress.is_before_evaluation:
            self._schedule = schedule  # it has what the evaluation after this step changes, by ReduceLROnPlateau
        stack = contextlib.ExitStack()
        stack.callback(schedule.restore)
        stack.enter_context(does_nothing(self.optimizer, "step"))
        return stack

    def finish_step(self) -> None:
        under_way, self._under_way = self._under_way, None
        assert under_way is not None
        under_way.close()
        self.state.epoch = self.state.global_step / len(self._loader)

    def floating_point_ops(self, inputs: typing.Any) -> int:
        batch: Batch = inputs
        of_this_rank = 0
        for micro_batch in batch.data:
            of_this_rank += super().floating_point_ops(micro_batch)
        return round(of_this_rank / batch.weight) if batch.weight > 0 else 0

    def evaluation_loop(self, dataloader: torch.utils.data.DataLoader[typing.Any], description: str, prediction_loss_only: bool | None = None,
                        ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval") -> EvalLoopOutput:
        """Divided among the ranks where only the loss is wanted, of which means are enough. For other metrics each rank needs all predictions."""
        job = self.job
        if job is None or not self.is_in_train or not prediction_loss_only or not reads_each_sample_once(dataloader):
            return super().evaluation_loop(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
        model = self.model
        assert model is not None
        self.callback_handler.eval_dataloader = dataloader
        if callable(getattr(self.optimizer, "eval", None)):  # as Trainer does it, for optimizers without a schedule
            self.optimizer.eval()  # type: ignore[union-attr]

        def measure(batch: Batch) -> dict[str, typing.Any]:
            loss, _, _ = self.prediction_step(model, batch.data, True, ignore_keys)
            self.control = self.callback_handler.on_prediction_step(self.args, self.state, self.control)
            return {"has no labels": 1.0} if loss is None else {"loss": loss}

        with self._progress.evaluating():
            found = job.evaluations.evaluate(self.state.global_step, False, dataloader.dataset, self.args.eval_batch_size, measure,
                                             {"collate_fn": dataloader.collate_fn, **arguments_of(dataloader)})
        if self._schedule is None and job.finished_steps > self.state.global_step:
            # The scheduler has come with later steps while this rank evaluated, and has the result already.
            self._schedule = Schedule(self.optimizer, [self.lr_scheduler])  # type: ignore[arg-type]
        self._take_rank(job)
        metrics = {f"{metric_key_prefix}_loss": found["loss"]} if "loss" in found else {}
        return EvalLoopOutput(predictions=None, label_ids=None, metrics=metrics, num_samples=len(dataloader.dataset))  # type: ignore[arg-type]

    # Without a barrier the others cannot know when the files of rank 0 are complete, and Trainer would let each single process write them.

    def _save_checkpoint(self, model: torch.nn.Module, trial: typing.Any) -> None:
        if self.args.should_save:
            super()._save_checkpoint(model, trial)
        elif self.state.best_global_step:
            self.state.best_model_checkpoint = os.path.join(self._get_output_dir(trial), f"checkpoint-{self.state.best_global_step}")

    def _load_best_model(self) -> None:
        if self.args.should_save:
            super()._load_best_model()


class _Flow(transformers.TrainerCallback):
    """Called before all other callbacks."""

    def __init__(self, trainer: _ElasticTrainer) -> None:
        self._trainer = trainer
        self.callbacks: list[transformers.TrainerCallback] | None = None  # of the Trainer, while they are not called
        self._verbosity = 0

    def on_train_begin(self, args: typing.Any, state: transformers.TrainerState, control: transformers.TrainerControl, **_: typing.Any) -> None:
        trainer = self._trainer
        before = state.global_step
        trainer.join()
        steps_per_epoch = len(trainer._loader)
        if state.global_step // steps_per_epoch > before // steps_per_epoch:
            # The others have finished epochs that the Trainer of this rank passes through now, without samples.
            self.callbacks, trainer.callback_handler.callbacks = trainer.callback_handler.callbacks, [self]
            self._verbosity = transformers.utils.logging.get_verbosity()
            transformers.utils.logging.set_verbosity(logging.ERROR)

    def on_step_end(self, args: typing.Any, state: transformers.TrainerState, control: transformers.TrainerControl, **_: typing.Any) -> None:
        self._trainer.finish_step()

    def on_epoch_end(self, args: typing.Any, state: transformers.TrainerState, control: transformers.TrainerControl, **_: typing.Any) -> None:
        if self.callbacks is None:
            return
        control.should_training_stop = False  # as Trainer wants after an epoch without samples
        loader = self._trainer._loader
        if loader.epoch + 1 >= state.global_step // len(loader):
            self._trainer.callback_handler.callbacks, self.callbacks = self.callbacks, None
            transformers.utils.logging.set_verbosity(self._verbosity)


class _Progress:
    """What a rank that starts must know of the Trainers of the others, in addition to model, optimizer and scheduler.

    A round may begin while the others evaluate. Then a rank that starts learns what they knew before the newest step, and its Trainer does all that follows
    the step, as theirs do: it waits for the result, logs it, and lets the scheduler and the callbacks know of it.
    """

    def __init__(self, trainer: _ElasticTrainer) -> None:
        self._trainer = trainer
        self.is_complete = False
        self.is_before_evaluation = False  # what this rank has received
        self.loss = 0.0  # of the newest step
        self._before_step: dict[str, typing.Any] | None = None
        self._evaluates = False

    def step_begins(self) -> None:
        self._before_step = self._of_trainer()

    @contextlib.contextmanager
    def evaluating(self) -> typing.Iterator[None]:
        self._evaluates = True
        try:
            yield
        finally:
            self._evaluates = False

    def _of_trainer(self) -> dict[str, typing.Any]:
        trainer = self._trainer
        state = {name: value for name, value in vars(trainer.state).items() if name not in _NOT_SHARED}
        return {"state": {**state, "log_history": list(trainer.state.log_history)},
                "logged": (trainer._tr_loss.clone(), trainer._total_loss_scalar, trainer._globalstep_last_logged),
                "callbacks": [(type(each).__name__, each.state()["attributes"]) for each in self._exportable()]}

    def _exportable(self) -> list[ExportableState]:
        callbacks = self._trainer._flow.callbacks or self._trainer.callback_handler.callbacks
        return [each for each in callbacks if isinstance(each, ExportableState)]

    def state_dict(self) -> dict[str, typing.Any]:
        before = self._before_step if self._evaluates else None
        known = before or self._of_trainer()
        loss, *logged = known["logged"]
        return {**known, "logged": (float(loss), *logged), "loss": self.loss, "order": self._trainer._loader.order,
                "is_before_evaluation": before is not None}

    def load_state_dict(self, state: dict[str, typing.Any]) -> None:
        trainer = self._trainer
        trainer._loader.expect_same(state["order"])
        self.loss, self.is_before_evaluation = state["loss"], state["is_before_evaluation"]
        if self.is_complete:
            return  # this rank is behind, and its Trainer does all that follows each step
        vars(trainer.state).update(state["state"])
        loss, trainer._total_loss_scalar, trainer._globalstep_last_logged = state["logged"]
        trainer._tr_loss.fill_(loss)
        for each, (name, attributes) in zip(self._exportable(), state["callbacks"]):
            if type(each).__name__ == name:
                vars(each).update(attributes)


def _start_as_single_process(start: typing.Callable[..., None]) -> typing.Callable[..., None]:
    @functools.wraps(start)
    def init(self: accelerate.PartialState, *args: typing.Any, **kwargs: typing.Any) -> None:
        if SOCKET not in os.environ or self.initialized:
            start(self, *args, **kwargs)
            return
        local_rank = int(os.environ["LOCAL_RANK"])
        _see_one_gpu(local_rank, int(os.environ["LOCAL_WORLD_SIZE"]))
        hidden = {name: os.environ.pop(name) for name in _FOUND_BY if name in os.environ}
        try:
            start(self, *args, **kwargs)
        finally:
            os.environ.update(hidden)
        self.process_index, self.local_process_index = int(os.environ["RANK"]), local_rank
    return init


def _see_one_gpu(local_rank: int, ranks: int) -> None:
    """A single process would use all GPUs of the pod."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(ranks)))).split(",")
    if len(visible) == ranks > 1 and not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[local_rank]


# TrainingArguments make Accelerate create a process group by torchrun's variables, for which a rank that starts later would wait.
accelerate.PartialState.__init__ = _start_as_single_process(accelerate.PartialState.__init__)

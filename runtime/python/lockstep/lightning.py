"""A strategy of Lightning that makes its Trainer a rank of an elastic job, by two lines in its script.

    import lockstep.lightning

    trainer = lightning.Trainer(strategy=lockstep.lightning.LockstepStrategy(global_batch_size=256), max_epochs=4)
    trainer.fit(model, data)

The Trainer behaves as in a single process, and calls `optimizer_step` once for each step. There all micro-batches of this rank and the update run as a
transaction, which is repeated with the new share of this rank after the loss of another one.
"""
from __future__ import annotations

import dataclasses
import functools
import os
import typing

import lightning.pytorch
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_only

from lockstep.batches import Batch
from lockstep.control import SOCKET
from lockstep.errors import LockstepError
from lockstep.frameworks import Schedule, ShareLoader, does_nothing, without_sync
from lockstep.job import Job
from lockstep.joining import join
from lockstep.step import Step


class LockstepStrategy(SingleDeviceStrategy):
    """For `lightning.Trainer(strategy=...)`: `trainer.fit()` continues in this process when other ranks are lost or added; alone, as one process.

    `global_batch_size`: samples of one optimizer step over all ranks, whatever their number. The batch size of the DataLoader is that of a
    micro-batch, and each rank accumulates as many of them as its share of the step needs. `seed`: of the order of the samples. `ddp`: arguments of
    DistributedDataParallel.

    Examples:
        >>> trainer = lightning.Trainer(strategy=lockstep.lightning.LockstepStrategy(global_batch_size=256), max_epochs=4)
    """

    def __init__(self, global_batch_size: int, *, seed: int = 0, device: torch.device | str | None = None, **ddp: typing.Any) -> None:
        if global_batch_size < 1:
            raise LockstepError(f"global_batch_size must be at least 1, not {global_batch_size}")
        if SOCKET not in os.environ and int(os.environ.get("WORLD_SIZE", 1)) > 1:
            raise LockstepError("LockstepStrategy makes the process group by itself: start the script with `lockstep run` or as a job, not with torchrun")
        local_rank = int(os.environ.get("LOCAL_RANK", 0))
        super().__init__(device or (torch.device("cuda", local_rank) if torch.cuda.is_available() else "cpu"))
        self.job: Job | None = None
        self._global_batch_size, self._seed, self._ddp = global_batch_size, seed, ddp
        self._trainer: lightning.pytorch.Trainer | None = None
        self._loader: _Loader | None = None
        self._step: Step | None = None  # whose backward passes run
        self._inputs: typing.Any = None  # of the micro-batch, in place of those that Lightning passes on
        self._part = 1.0
        self._schedule: Schedule | None = None
        self.local_rank = local_rank
        self.take_rank(int(os.environ.get("RANK", 0)))

    def restore_schedule(self) -> None:
        if self._schedule is not None:
            self._schedule.restore()
            self._schedule = None

    def take_rank(self, rank: int) -> None:
        """It decides who logs and saves."""
        self.global_rank = rank
        rank_zero_only.rank = rank  # type: ignore[attr-defined]

    @property
    def is_global_zero(self) -> bool:
        return self.global_rank == 0

    def setup(self, trainer: lightning.pytorch.Trainer) -> None:
        super().setup(trainer)
        self._trainer = trainer
        if trainer.state.fn != TrainerFn.FITTING:
            return
        assert self.lightning_module is not None
        if self.job is not None:
            raise LockstepError("fit() can be called only once with a LockstepStrategy")
        unsupported = {
            "automatic_optimization = False": not self.lightning_module.automatic_optimization, "limit_train_batches": trainer.limit_train_batches != 1.0,
            "overfit_batches": getattr(trainer, "overfit_batches", 0) != 0,
            "reload_dataloaders_every_n_epochs": getattr(trainer, "reload_dataloaders_every_n_epochs", 0) != 0,
            "precision=\"16-mixed\" (\"bf16-mixed\" is supported)": getattr(self.precision_plugin, "scaler", None) is not None}
        found = [name for name, is_set in unsupported.items() if is_set]
        if found:
            raise LockstepError(f"not supported with LockstepStrategy: {', '.join(found)}")
        if trainer.accumulate_grad_batches != 1:
            raise LockstepError(f"accumulate_grad_batches={trainer.accumulate_grad_batches}: leave it out. The number of micro-batches follows from "
                                "global_batch_size, the batch size of the DataLoader and the number of ranks")
        if trainer.max_steps < 0 and (trainer.max_epochs or -1) < 0:
            raise LockstepError("LockstepStrategy needs max_epochs or max_steps, because the end of the job must be known")

    def process_dataloader(self, dataloader: object) -> object:
        """Where the loop over the training data is about to begin: all that a checkpoint holds is loaded."""
        trainer = self._trainer
        if trainer is None or not trainer.training:
            return dataloader
        if not isinstance(dataloader, torch.utils.data.DataLoader):
            raise LockstepError(f"LockstepStrategy needs a torch.utils.data.DataLoader for training, not {type(dataloader).__name__}")
        self._loader = loader = _Loader(self, trainer, dataloader, self._global_batch_size, self._seed)
        assert self.lightning_module is not None
        schedulers = [config.scheduler for config in self.lr_scheduler_configs]
        progress = _Progress(trainer, loader)
        self.job = join(self.lightning_module, *self.optimizers, *schedulers, progress, step=trainer.global_step, ddp=self._ddp)
        progress.is_complete = True
        limits = trainer.max_steps, (trainer.max_epochs or -1) * len(loader)
        loader.begin(self.job, min(steps for steps in limits if steps >= 0))
        self.take_rank(self.job.rank)
        return loader

    def optimizer_step(self, optimizer: torch.optim.Optimizer, closure: typing.Callable[[], typing.Any], model: typing.Any = None,
                       **kwargs: typing.Any) -> typing.Any:
        assert self.job is not None and self._loader is not None
        batch = wanted = self._loader.newest
        result = None
        while self.job.finished_steps == wanted.step:
            with self.job.step() as self._step:
                run = functools.partial(self._run_micro_batches, optimizer, closure, batch)
                result = super().optimizer_step(optimizer, run, model, **kwargs)
            is_committed = self._step.is_committed
            self._step = self._inputs = None
            if is_committed:
                return result
            batch = self._loader.read() or batch
        return self._without_update(optimizer, closure)

    def _run_micro_batches(self, optimizer: torch.optim.Optimizer, closure: typing.Callable[[], typing.Any], batch: Batch) -> typing.Any:
        assert self.job is not None and self._loader is not None
        result = None
        for micro_batch, self._part, is_last in self._loader.micro_batches(batch):
            self._inputs = self._on_device(micro_batch)
            with without_sync(self.job, is_last):
                if micro_batch is batch.data[0]:
                    result = closure()
                else:
                    with does_nothing(optimizer, "zero_grad"):
                        result = closure()
        return result

    def _on_device(self, micro_batch: typing.Any) -> typing.Any:
        """As the loop does it with the first one."""
        assert self.lightning_module is not None
        converted = self.precision_plugin.convert_input(micro_batch)
        return self.batch_to_device(self.lightning_module._on_before_batch_transfer(converted, dataloader_idx=0))

    def _without_update(self, optimizer: torch.optim.Optimizer, closure: typing.Callable[[], typing.Any]) -> typing.Any:
        """For a step that another rank has finished, whose state this one has received. Lightning wants a result, logs and saves what is due."""
        self.restore_schedule()
        self._schedule = Schedule(optimizer, [config.scheduler for config in self.lr_scheduler_configs])
        result = closure()
        optimizer.zero_grad()
        return result

    def training_step(self, batch: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if self._step is None or self.job is None:
            return super().training_step(batch, *args, **kwargs)
        module, self.model = self.model, self.job.model  # else DistributedDataParallel would be called in evaluations, too, where ranks may miss
        try:
            return super().training_step(self._inputs, *args, **kwargs)
        finally:
            self.model = module

    def backward(self, closure_loss: torch.Tensor, *args: typing.Any, **kwargs: typing.Any) -> torch.Tensor:
        if self._step is not None and self._loader is not None:
            closure_loss = closure_loss * self._part
            if self._loader.newest.ids:  # the loss of a sample that counts nothing may be NaN
                self._step.report(self._step.loss + float(closure_loss.detach()))
        return super().backward(closure_loss, *args, **kwargs)


class _Loader(ShareLoader):
    """Lightning sees the first micro-batch of each step."""

    newest: Batch

    def __init__(self, strategy: LockstepStrategy, trainer: lightning.pytorch.Trainer, loader: torch.utils.data.DataLoader[typing.Any],
                 global_batch_size: int, seed: int) -> None:
        if loader.batch_size is None:
            raise LockstepError("LockstepStrategy needs a DataLoader with a batch_size, which is the size of a micro-batch")
        super().__init__(loader, global_batch_size=global_batch_size, micro_batch_size=loader.batch_size, seed=seed, drop_last=loader.drop_last)
        self._strategy, self._trainer = strategy, trainer

    def __iter__(self) -> typing.Iterator[typing.Any]:
        for batch in self.of_epoch(self._trainer.global_step // len(self), lambda: self._trainer.global_step):
            # Lightning wants a result of each step, also of one without data.
            self.newest = batch if batch.data else dataclasses.replace(self.newest, ids=[], weight=0.0, step=batch.step)
            yield self.newest.data[0]

    def read(self) -> Batch | None:
        assert self._job is not None
        self._strategy.restore_schedule()
        batch = super().read()
        self._strategy.take_rank(self._job.rank)
        if batch is not None:
            self.newest = batch
        return batch

    # Its place follows from the steps that are finished, so Lightning need not warn about a checkpoint in an epoch.

    def state_dict(self) -> dict[str, typing.Any]:
        return {}

    def load_state_dict(self, state: dict[str, typing.Any]) -> None:
        pass


class _Progress:
    """What a rank that starts must know of the Trainers of the others, in addition to model, optimizer and schedulers."""

    def __init__(self, trainer: lightning.pytorch.Trainer, loader: _Loader) -> None:
        self._trainer, self._loader = trainer, loader
        self.is_complete = False

    def _callbacks(self) -> dict[str, lightning.pytorch.Callback]:
        return {each.state_key: each for each in self._trainer.callbacks}  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, typing.Any]:
        callbacks = {key: each.state_dict() for key, each in self._callbacks().items()}
        return {"order": self._loader.order, "step": self._trainer.global_step, "loops": self._trainer.fit_loop.state_dict(), "callbacks": callbacks}

    def load_state_dict(self, state: dict[str, typing.Any]) -> None:
        self._loader.expect_same(state["order"])
        # Otherwise there is nothing to know, or this rank is one step behind, and its Trainer does all that follows the step.
        if state["step"] > 0 and not self.is_complete:
            self._trainer.fit_loop.load_state_dict(state["loops"])
            for key, each in self._callbacks().items():
                if key in state["callbacks"]:
                    each.load_state_dict(state["callbacks"][key])

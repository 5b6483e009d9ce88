#include "runtime/train/loop/elastic_loop.h"

#include <algorithm>
#include <optional>

#include "runtime/comm/connect_unless_stopped.h"
#include "runtime/comm/torch_error.h"
#include "runtime/common/api/model_flops.h"
#include "runtime/common/base/log.h"
#include "runtime/train/loop/broken_rounds.h"
#include "runtime/train/loop/evaluation.h"
#include "runtime/train/loop/exit_code_of.h"
#include "runtime/train/loop/profile_requests.h"
#include "runtime/train/loop/progress.h"
#include "runtime/train/loop/speed.h"
#include "runtime/train/loop/stopping.h"
#include "runtime/train/saves/saves.h"
#include "runtime/train/step/stepper.h"
#include "runtime/train/step/windows.h"

namespace lockstep::train {
namespace {

using protocol::ExitCode;

constexpr int kFinalSaveAttempts = 3;
// Steps between two measurements of the ranks' speeds. Speeds change, and a measurement costs a fraction of a
// step.
constexpr int64_t kStepsOfAShare = 100;

enum class RoundEnd {
  kLeft,      // left in good order, or asked to leave: join the next round
  kBroken,    // this rank detected the break: report it to the supervisor, join the next round
  kFinished,  // training is complete and stored
  kStopped,   // asked to stop, and the state is safe with peers or in a checkpoint
  kFailed,    // an error that another round cannot repair
};

struct RoundOutcome {
  RoundEnd end = RoundEnd::kLeft;
  Error error{};             // for kBroken and kFailed
  int64_t failed_step = -1;  // as in protocol::Failed
};

// Objects of one round. They are dropped after the rank has reported Ready for the next round, because
// dropping takes milliseconds in which the round can already form. Only a device's group is closed before:
// its abort may hang, and the next round must not wait for a rank that then ends.
struct Round {
  protocol::RankAssignment assignment;
  std::stop_token aborted;
  std::shared_ptr<comm::Communicator> communicator;  // shared with the control thread, which may abort it
};

int64_t TotalSteps(const api::TrainingSpec& training, const data::SamplePlan& plan) {
  return training.steps.has_value() ? *training.steps : training.epochs.value_or(1) * plan.steps_per_epoch();
}

int64_t TokensPerSample(const LoopInputs& inputs) {
  const bool is_text = inputs.training.data.format == api::DataFormat::kTokens;
  return is_text ? inputs.state.input.sample_shape.front() : 0;
}

class ElasticLoop {
 public:
  explicit ElasticLoop(const LoopInputs& inputs)
      : in_(inputs),
        state_(inputs.state),
        plan_(inputs.samples.plan()),
        total_steps_(TotalSteps(inputs.training, plan_)),
        windows_(inputs.training,
                 inputs.checkpointer == nullptr ? std::nullopt : inputs.checkpoint.interval_steps,
                 plan_.steps_per_epoch(), total_steps_),
        phases_(inputs.clock),
        profile_(inputs.profile, inputs.state.device.is_cuda()),
        profile_requests_(profile_, inputs.control, inputs.link, total_steps_),
        ledger_(inputs.ledger_folder, inputs.process_name, inputs.clock),
        progress_(inputs.link, phases_, inputs.clock, total_steps_, plan_.steps_per_epoch(),
                  TokensPerSample(inputs), inputs.log_all_ranks),
        patience_({inputs.store_patience, inputs.clock,
                   [&inputs](const protocol::StoreUnavailable& away) { inputs.link.Send(away); },
                   [this](Milliseconds time) { return PauseInRound(time); }}),
        saves_({inputs.checkpointer, inputs.checkpoint, inputs.clock, inputs.link, phases_, patience_,
                progress_.history(), plan_.steps_per_epoch()}),
        stopping_({inputs.control, progress_, saves_, state_}),
        stepper_(state_.MakeStepper(
            {inputs.training, inputs.samples, total_steps_, ledger_, phases_, inputs.device.backend})),
        evaluator_(inputs.training, state_, inputs.test) {}

  // The step at which an error of this rank itself occurs. -1 while it enters a round: no samples are used
  // there, so the training is not responsible if memory for a received or restored state is short.
  [[nodiscard]] int64_t StepUnderWay() const {
    if (!has_entered_) return -1;
    return std::max<int64_t>(0, attempting_ > 0 ? attempted_step_ : state_.step);
  }

  LoopOutcome Run() {
    if (in_.profile.planned.has_value() && in_.profile.planned->first >= total_steps_) {
      log::Warning("no profile: LOCKSTEP_PROFILE names steps after the last one",
                   {{"last_step", total_steps_ - 1}});
    }
    while (true) {
      Result<comm::Listener> listener = comm::Listener::Open(in_.listen_address);
      if (!listener.ok()) return {ExitCode::kInfrastructure, listener.error().message};
      if (round_.communicator != nullptr) {
        stepper_->LeaveRound();
        bytes_before_ += round_.communicator->bytes_given();
        round_.communicator->Close();
      }
      const bool hands_over = stopping_.hands_over();
      in_.link.Send(protocol::Ready{state_.step, listener->port(), FlopsPerSample(), hands_over});
      stepper_->ForgetRound();  // while the next one forms
      round_ = Round{};
      const auto assignment = in_.control.WaitForAssignment(hands_over);
      if (!assignment.has_value()) return StopAlone();
      round_.assignment = *assignment;
      last_place_ = {assignment->round, assignment->rank};
      round_.aborted = in_.control.round_aborted();
      const RoundOutcome outcome = RunRound(std::move(*listener));
      in_.control.Detach();
      if (const auto end = AfterRound(outcome)) return *end;
    }
  }

 private:
  // 0: not known.
  [[nodiscard]] double FlopsPerSample() const {
    const ModelInput& input = state_.input;
    return api::TrainingFlopsPerSample(in_.training.model, input.sample_shape, input.classes).value_or(0);
  }

  LoopOutcome StopAlone() {
    stopping_.Alone(last_place_);
    // Either the last rank of a job stops here, or all ranks stop together. If other ranks continue, rank 0
    // of the next round writes the marker again.
    if (last_place_.rank >= 0) saves_.EndOwnership();
    return {ExitCode::kPreempted, ""};
  }

  // Returns nothing to join the next round.
  std::optional<LoopOutcome> AfterRound(const RoundOutcome& outcome) {
    switch (outcome.end) {
      case RoundEnd::kLeft: return std::nullopt;
      case RoundEnd::kBroken:
        log::Warning(
            "round broken",
            {{"round", round_.assignment.round}, {"step", state_.step}, {"reason", outcome.error.message}});
        return AfterBroken(outcome.error);
      case RoundEnd::kFinished:
        if (last_place_.rank == 0) saves_.EndOwnership();
        in_.link.Send(protocol::Finished{state_.step});
        return LoopOutcome{};
      case RoundEnd::kStopped:
        saves_.ReleaseOwnership();  // the remaining ranks hold it in their next round
        progress_.SendNow();
        stopping_.Drain();
        return LoopOutcome{ExitCode::kPreempted, ""};
      case RoundEnd::kFailed: return Failed(outcome);
    }
    return std::nullopt;
  }

  LoopOutcome Failed(const RoundOutcome& outcome) {
    const ExitCode code = ExitCodeOf(outcome.error);
    if (code == ExitCode::kUserError) saves_.EndOwnership();  // the job ends
    return {code, outcome.error.message, outcome.failed_step};
  }

  std::optional<LoopOutcome> AfterBroken(const Error& error) {
    const std::optional<Milliseconds> pause = broken_rounds_.Broke();
    if (!pause.has_value()) {
      return LoopOutcome{ExitCode::kInfrastructure,
                         std::to_string(broken_rounds_.count()) +
                             " rounds broke without a step between; the last one: " + error.message};
    }
    in_.control.Pause(*pause);
    return std::nullopt;
  }

  RoundOutcome RunRound(comm::Listener listener) {
    has_entered_ = false;
    const SteadyTime start = in_.clock.Steady();
    progress_.Phase(protocol::RankPhase::kSync);
    if (const auto entered = EnterRound(std::move(listener), start); !entered.ok())
      return Leave(entered.error());
    has_entered_ = true;
    progress_.Phase(protocol::RankPhase::kTrain);
    while (true) {
      const Result<std::optional<RoundEnd>> end = Advance();
      if (!end.ok()) return Leave(end.error());
      if (end->has_value()) return {**end};
    }
  }

  Result<void> EnterRound(comm::Listener listener, SteadyTime start) {
    const protocol::RankAssignment& assignment = round_.assignment;
    const comm::Place place{.round = assignment.round,
                            .rank = assignment.rank,
                            .world = assignment.world,
                            .address = assignment.address,
                            .store_host = assignment.store_host,
                            .store_port = assignment.store_port,
                            .subgroup_size = state_.SubgroupOf(assignment.world)};
    LOCKSTEP_TRY(round_.communicator,
                 comm::ConnectUnlessStopped(place, std::move(listener), {.collective = in_.collective_limit},
                                            round_.aborted, in_.device));
    in_.control.Attach(round_.communicator);
    LOCKSTEP_TRY(const StateSource source,
                 state_.Sync(*round_.communicator, [this](TrainingState&) { return Restore(); }));
    saves_.HoldOwnership(assignment.rank);
    speeds_.assign(static_cast<std::size_t>(assignment.world), 1);
    LOCKSTEP_TRY(stepper_->EnterRound(round_.communicator));
    LOCKSTEP_TRY(ShareOut());
    ledger_.EnterRound(assignment.round, assignment.rank);
    progress_.EnterRound(assignment, state_.step, source);
    const double seconds = Seconds(in_.clock.Steady() - start).count();
    phases_.Add(TrainPhase::kSync, seconds);
    in_.link.Send(protocol::Synced{assignment.round, state_.step, std::string(NameOf(source)), seconds});
    return {};
  }

  // Returns false if training begins at step 0, also if this process had more steps and lost a part of the
  // state.
  Result<bool> Restore() {
    LOCKSTEP_TRY(const bool restored, saves_.Restore(*round_.communicator, state_, [this](Milliseconds time) {
      return PauseInRound(time);
    }));
    if (!restored && (state_.step > 0 || state_.is_torn)) {
      log::Error("no checkpoint to restore: training starts again at step 0", {{"step", state_.step}});
      LOCKSTEP_TRY(state_.StartAfresh());
    }
    return restored;
  }

  // For waits that are not for a peer. Returns false if the round is over or the rank should stop.
  bool PauseInRound(Milliseconds time) {
    // As a sign of life.
    progress_.Phase(state_.step >= total_steps_ ? protocol::RankPhase::kSave : protocol::RankPhase::kSync);
    return in_.control.PauseInRound(time);
  }

  // Sets the shares of all ranks for the following steps. A collective, if shares depend on speed.
  Result<void> ShareOut() {
    shares_until_ = total_steps_;
    if (in_.training.balance == api::Balance::kSpeed) {
      LOCKSTEP_TRY(speeds_, SpeedsOfRanks(*round_.communicator, speed_.Measure()));
      // The interval counts from step 0 in every round, so all ranks call this together.
      const int64_t interval = std::min(kStepsOfAShare, plan_.steps_per_epoch());
      const int64_t due = std::min(total_steps_, state_.step + interval - state_.step % interval);
      shares_until_ = windows_.EndAfter(due - 1);
    }
    stepper_->Share(speeds_, shares_until_);
    return {};
  }

  // Does what is next in the round: an evaluation that is due, the end, or a step or window of steps.
  Result<std::optional<RoundEnd>> Advance() {
    if (EvaluationIsDue()) return RunEvaluation();
    if (state_.step >= total_steps_ || StopsEarly()) return Finish();
    if (state_.step >= shares_until_) LOCKSTEP_TRY(ShareOut());
    return RunStep();
  }

  Requests CurrentRequests(int64_t end) {
    const bool is_first = round_.assignment.rank == 0;
    return {.yield = in_.control.yield_requested(),
            .stop = in_.control.stop_requested(),
            // The end of the training has its own save.
            .save = is_first && end < total_steps_ && (saves_.IsDue(end) || in_.control.save_requested()),
            .profile = is_first ? profile_requests_.WindowToAnnounce(end) : api::ProfileWindow{}};
  }

  Result<std::optional<RoundEnd>> RunStep() {
    const int64_t end = windows_.EndAfter(state_.step);
    const int64_t steps = end - state_.step;
    Requests requests;
    bool has_waited = false;
    const StepCalls calls{.requests =
                              [&] {
                                requests = CurrentRequests(end);
                                return requests;
                              },
                          .begins =
                              [&](int64_t step, int64_t taken) {
                                attempted_step_ = step;
                                // With async a rank may take more batches than the window has steps.
                                attempting_ = std::min(taken + 1, steps);
                                if (taken > 0) progress_.UnderWay(std::min(taken, steps));
                                profile_.BeginStep(step, round_.assignment.rank);
                              },
                          .waits =
                              [&] {
                                has_waited = true;
                                progress_.UnderWay(steps);
                                progress_.Phase(protocol::RankPhase::kAverage);
                              }};
    LOCKSTEP_TRY(const StepReport report, stepper_->Run(end, calls, round_.aborted));
    attempting_ = 0;
    broken_rounds_.MadeStep();
    progress_.Communicated(bytes_before_ + round_.communicator->bytes_given());
    progress_.Committed(state_.step, report);
    if (has_waited) progress_.Phase(protocol::RankPhase::kTrain);
    speed_.Committed(report.steps, report.local_count + report.local_corrupt);
    if (!report.applied) {
      log::Warning("step skipped: not finite",
                   {{"step", state_.step - 1}, {"loss", report.loss}, {"where", report.not_finite}});
    }
    saves_.Report();
    if (report.all.saving > 0) in_.control.SaveBegins();
    profile_requests_.OnAnnounced(report.all.profile, state_.step, round_.assignment.rank == 0);
    const bool all_stop = report.all.stopping == round_.assignment.world;
    const bool hands_over = state_.is_divided() && report.all.stopping > 0;
    const bool is_stored_anyway = saves_.on_termination() && (all_stop || hands_over);
    if (report.all.saving > 0 && !is_stored_anyway) LOCKSTEP_TRY(StartSave());
    if (all_stop) {
      stopping_.Together(round_.communicator);
      return std::optional(RoundEnd::kStopped);
    }
    if (!hands_over && state_.CopyIsDue(report.all.saving > 0)) LOCKSTEP_TRY(Copy());
    bool leaves = requests.stop;
    if (hands_over) {
      LOCKSTEP_TRY(leaves, HandOver());
    }
    // The remaining ranks hold the state of this step, too.
    if (leaves) return std::optional(RoundEnd::kStopped);
    if (report.all.yielding + report.all.stopping > 0) return std::optional(RoundEnd::kLeft);
    return std::optional<RoundEnd>();
  }

  // Returns whether this rank leaves for good.
  Result<bool> HandOver() {
    return stopping_.HandOver(round_.communicator, round_.assignment.rank - round_.assignment.local_rank);
  }

  Result<void> StartSave() {
    // Copying a large state takes longer than any step.
    progress_.Phase(protocol::RankPhase::kSnapshot);
    LOCKSTEP_TRY(saves_.Start(round_.communicator, state_));
    progress_.Phase(protocol::RankPhase::kTrain);
    return {};
  }

  Result<void> Copy() {
    progress_.Phase(protocol::RankPhase::kSnapshot);
    LOCKSTEP_TRY(phases_.Time(TrainPhase::kCheckpoint, [this] { return state_.Copy(*round_.communicator); }));
    progress_.Phase(protocol::RankPhase::kTrain);
    return {};
  }

  [[nodiscard]] bool EvaluationIsDue() const {
    const auto& evaluation = in_.training.evaluation;
    if (!evaluation.has_value() || state_.step == 0 || state_.evaluations.step >= state_.step) return false;
    return state_.step >= total_steps_ ||
           state_.step % (evaluation->every_epochs * plan_.steps_per_epoch()) == 0;
  }

  Result<std::optional<RoundEnd>> RunEvaluation() {
    progress_.Phase(protocol::RankPhase::kEvaluate);
    LOCKSTEP_TRY(const Evaluation result, phases_.Time(TrainPhase::kEvaluate, [this] {
      return evaluator_.Run(
          *round_.communicator, speeds_,
          [this] {
            progress_.GoesOn(protocol::RankPhase::kEvaluate);
            return in_.control.yield_requested() || in_.control.stop_requested();
          },
          round_.aborted);
    }));
    progress_.Phase(protocol::RankPhase::kTrain);
    // The evaluation is repeated in the next round. A rank that should stop leaves now if it hands its part
    // over, and otherwise stops outside of a round.
    if (!result.complete) {
      if (state_.is_divided()) {
        LOCKSTEP_TRY(const bool leaves, HandOver());
        if (leaves) return std::optional(RoundEnd::kStopped);
      }
      return std::optional(RoundEnd::kLeft);
    }
    state_.evaluations =
        WithEvaluation(state_.evaluations, in_.training.early_stop.value_or(api::EarlyStopSpec{}),
                       state_.step, result.loss, result.accuracy);
    progress_.Evaluated(result);
    return std::optional<RoundEnd>();
  }

  // Every rank has the same evaluations, so all ranks decide alike.
  [[nodiscard]] bool StopsEarly() const {
    if (!in_.training.early_stop.has_value()) return false;
    const auto reason = ReasonToStop(state_.evaluations, *in_.training.early_stop);
    if (reason.has_value()) log::Info("stopping early", {{"step", state_.step}, {"reason", *reason}});
    return reason.has_value();
  }

  Result<std::optional<RoundEnd>> Finish() {
    progress_.SendNow();
    progress_.Phase(protocol::RankPhase::kSave);
    while (true) {
      const Result<void> saved =
          saves_.SaveTogether(round_.communicator, state_, std::nullopt, kFinalSaveAttempts);
      if (saved.ok()) break;
      if (!saved.error().IsTransient()) return saved.error();
      LOCKSTEP_TRY(patience_.Await(saved.error(), "the last checkpoint"));
    }
    LOCKSTEP_TRY(round_.communicator->Barrier());
    profile_.Finish(round_.assignment.rank);
    if (in_.control.profile_wanted().has_value())
      log::Warning("no profile: the training had ended when it was requested");
    progress_.SendNow();
    return std::optional(RoundEnd::kFinished);
  }

  // Leaves after an error in a round. Aborts the communicator first, so that no peer waits for this rank.
  RoundOutcome Leave(const Error& error) {
    stepper_->LeaveRound();
    if (round_.communicator != nullptr) round_.communicator->Abort();
    const int64_t failed_step = IsOwn(error) ? StepUnderWay() : -1;
    progress_.Repeating(std::exchange(attempting_, 0));
    const bool is_over = round_.aborted.stop_requested();
    if (error.code == ErrorCode::kCancelled || (is_over && error.code == ErrorCode::kAborted))
      return {RoundEnd::kLeft};
    const bool repairable = error.code == ErrorCode::kAborted || error.code == ErrorCode::kInternal;
    if (!repairable) return {RoundEnd::kFailed, error, failed_step};
    in_.link.Send(protocol::Broken{round_.assignment.round, error.message, failed_step});
    return {RoundEnd::kBroken, error, failed_step};
  }

  // Whether the error comes from this rank's own work, and not from a peer or a machine. If it repeats at the
  // same step, the training itself is responsible.
  static bool IsOwn(const Error& error) {
    return error.code == ErrorCode::kInternal || error.code == ErrorCode::kDeviceFault;
  }

  const LoopInputs& in_;
  TrainingState& state_;
  const data::SamplePlan& plan_;
  const int64_t total_steps_;
  const Windows windows_;
  PhaseClock phases_;
  Profile profile_;
  ProfileRequests profile_requests_;
  SampleLedger ledger_;
  ProgressReporter progress_;
  StorePatience patience_;
  Saves saves_;
  Stopping stopping_;
  const std::unique_ptr<Stepper> stepper_;
  Evaluator evaluator_;
  SpeedMeter speed_{phases_};
  std::vector<double> speeds_;  // of the ranks of the round
  int64_t shares_until_ = 0;    // the step at which they are measured again
  Round round_;
  bool has_entered_ = false;  // entered that round: its state is complete
  LastPlace last_place_;
  BrokenRounds broken_rounds_;
  int64_t bytes_before_ = 0;    // bytes given in earlier rounds
  int64_t attempting_ = 0;      // steps that were begun and not committed
  int64_t attempted_step_ = 0;  // the newest of them
};

}  // namespace

LoopOutcome RunElasticLoop(const LoopInputs& inputs) {
  std::optional<ElasticLoop> loop;
  try {
    loop.emplace(inputs);
    return loop->Run();
  } catch (...) {
    // For example lack of memory or threads where no error handling exists.
    const Error error = comm::CurrentException(ErrorCode::kInternal, "training");
    return {ExitCode::kInfrastructure, error.message, loop.has_value() ? loop->StepUnderWay() : -1};
  }
}

}  // namespace lockstep::train

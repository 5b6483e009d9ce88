#include "operator/process.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "operator/controller/controller.h"
#include "operator/kube/rest_client.h"
#include "operator/metrics_access.h"
#include "operator/reconcile/job_reconciler.h"
#include "operator/rendezvous/certificate_keeper.h"
#include "operator/rendezvous/host.h"
#include "operator/rendezvous/leader_label.h"
#include "operator/rendezvous/pod_feed.h"
#include "operator/rendezvous/token_review.h"
#include "operator/shard_reconciler.h"
#include "operator/sharding/shard_gate.h"
#include "operator/sharding/shard_lease.h"
#include "operator/telemetry/health.h"
#include "operator/telemetry/metrics.h"
#include "operator/watches.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/http/address.h"

namespace lockstep {
namespace {

// All objects that live as long as the process. Members are in the order of their start; the destructors stop
// them in reverse order.
class Process {
 public:
  Process(const OperatorConfig& config, const kube::ClientConfig& client_config,
          http::HttpTransport& transport)
      : config_(config),
        name_space_(config.name_space.empty() ? client_config.name_space : config.name_space),
        identity_((config.pod_name.empty() ? std::string("operator") : config.pod_name) + "_" + RandomHex(4)),
        metrics_(clock_, config.workers, client_config.endpoint.url, config.lease_name),
        transport_(transport),
        client_(transport, {.observer = Observer()}),
        lease_client_(transport,
                      {.observer = Observer(), .time_left = [this] { return lease_.RequestTime(); }}),
        lease_(lease_client_, clock_,
               {.lease = {name_space_, config.lease_name},
                .identity = identity_,
                .is_pod = !config.pod_name.empty(),
                .work_on = [this](const auto& shards) { return WorkOn(shards); },
                .on_expired = [] { EndAtOnce("the lease was not renewed within the renew deadline"); },
                .authorities = [this] { return certificates_ ? certificates_->ServedAuthorities() : ""; },
                .timings = config.lease}),
        events_(client_, clock_, identity_),
        service_(
            clock_, [this](const auto& claim, auto done) { reviewer_.Authorize(claim, std::move(done)); },
            [this](const protocol::JobIdentity& job) { Enqueue(job.name_space + "/" + job.name); },
            [this](const protocol::JobIdentity& job) { return HostOf(job); }),
        review_client_(transport, {.observer = Observer(),
                                   // no wait: the member repeats its request
                                   .pause = [](auto, const auto&) { return false; },
                                   .timeout = rendezvous::kReviewDeadline}),
        reviewer_(review_client_, caches_.pods, clock_),
        pod_feed_(caches_.jobs, service_),
        watches_(client_, caches_, clock_, OptionsOfWatches()) {
    if (!config.secure_metrics_address.empty()) metrics_access_.emplace(review_client_, clock_);
    const bool has_own = !config.tls_secret.empty();
    if (!has_own && config.certificate_secret.empty()) return;
    certificates_.emplace(
        client_, clock_,
        rendezvous::CertificateOptions{
            .secret = {name_space_, has_own ? config.tls_secret : config.certificate_secret},
            .kept_by = has_own ? rendezvous::SecretKeeper::kOperator : rendezvous::SecretKeeper::kOther,
            .rendezvous_url = config.rendezvous_url,
            .overlap = config.certificate_overlap,
            .of_others = [this] { return lease_.AuthoritiesOfOthers(); }},
        [this] { EnqueueAll(); });
  }

  Result<void> Run(const std::stop_token& stop) {
    LOCKSTEP_TRY(const auto health, telemetry::StartHealthServer(config_.metrics_address, HealthSources()));
    LOCKSTEP_TRY(const auto secure_metrics, StartSecureMetrics());
    log::Info("operator started", {{"version", LOCKSTEP_VERSION},
                                   {"identity", identity_},
                                   {"metrics_port", (secure_metrics ? secure_metrics : health)->port()},
                                   {"health_port", health->port()},
                                   {"namespace", name_space_}});
    // A label left by an earlier process of this pod would direct workers to this replica.
    if (!config_.pod_name.empty()) rendezvous::RemoveLeaderLabel(client_, OwnPod(), stop, PauseFor);
    watches_.Start(stop);
    if (certificates_) certificates_->Start();
    if (!watches_.AwaitCaches(stop)) return {};
    caches_synced_ = true;
    if (!AwaitCertificate(stop)) return {};
    auto led = Lead(stop);
    if (!config_.pod_name.empty()) Unlabel();
    if (config_.leader_elect) lease_.Leave();
    return led;
  }

 private:
  kube::RequestObserver Observer() {
    return [this](const std::string& method, int status) { metrics_.OnRequest(method, status); };
  }

  http::Response ExposeMetrics() { return metrics_.Expose(QueueDepth()); }

  // Null if metrics need no authorisation. Without a certificate of the rendezvous it uses a self-signed one
  // that clients cannot verify: the protection is the token of the reader.
  Result<std::unique_ptr<http::HttpServer>> StartSecureMetrics() {
    if (config_.secure_metrics_address.empty()) return std::unique_ptr<http::HttpServer>();
    if (!certificates_) {
      LOCKSTEP_TRY(
          const rendezvous::ServerIdentity identity,
          rendezvous::MakeServerIdentity(rendezvous::DnsNamesOf(config_.rendezvous_url), clock_.Now()));
      LOCKSTEP_TRY(made_certificate_.Use(identity.certificate, identity.key));
    }
    return telemetry::StartSecureMetricsServer(
        {.address = config_.secure_metrics_address,
         .certificate = certificates_ ? certificates_->newest() : made_certificate_,
         .metrics = [this] { return ExposeMetrics(); },
         .authorize = [this](const auto& token, const auto& peer,
                             auto done) { metrics_access_->Authorize(token, peer, std::move(done)); }});
  }

  telemetry::HealthSources HealthSources() {
    std::function<http::Response()> metrics;
    if (config_.secure_metrics_address.empty()) metrics = [this] { return ExposeMetrics(); };
    return {.metrics = std::move(metrics), .why_not_ready = [this] {
              if (!caches_synced_) return std::string("caches are not filled yet");
              return certificates_ ? certificates_->WhyNoneIsServed() : std::string();
            }};
  }

  WatchesOptions OptionsOfWatches() {
    WatchesOptions options{.namespace_selector = config_.namespace_selector,
                           // the round must not wait for a reconcile
                           .on_pod = [this](const auto& change) { pod_feed_.OnChange(change); },
                           .on_job = [this](const auto& job) { Enqueue(job); },
                           .on_owned = [this](const auto& job) { EnqueueSoon(job); },
                           .on_all = [this] { EnqueueAll(); },
                           .is_ours = [this](const auto& uid) { return gate_.IsOpenTo(uid); }};
    if (!config_.watch_namespaces.empty()) options.name_spaces = config_.watch_namespaces;
    return options;
  }

  // Before the lease: a replica that cannot serve the rendezvous must not lead.
  bool AwaitCertificate(const std::stop_token& stop) {
    while (certificates_ && !certificates_->WhyNoneIsServed().empty()) {
      if (!PauseFor(std::chrono::milliseconds(20), stop)) return false;
    }
    return true;
  }

  reconcile::ClusterSettings Settings() const {
    return {.rendezvous_url = config_.rendezvous_url,
            .ca_pem = certificates_ ? certificates_->Trusted() : "",
            .launcher_image = config_.launcher_image,
            .launcher_pull_policy = config_.launcher_pull_policy,
            .managed_by = config_.managed_by,
            .selects_namespaces = !config_.namespace_selector.empty(),
            .installation = name_space_ + "/" + config_.lease_name,
            .takes_over = config_.leader_elect && config_.watch_namespaces.empty()};
  }

  Result<void> Lead(const std::stop_token& stop) {
    const http::ServerCertificate* certificate = certificates_ ? &certificates_->served() : nullptr;
    LOCKSTEP_TRY(const auto host,
                 rendezvous::Host::Start({config_.rendezvous_address, certificate}, service_));
    rendezvous_port_ = host->port();
    // A separate client: many jobs must not delay the renewal of the lease, and a shutdown must not wait for
    // the writes of a thousand pods.
    kube::RestClient writer(transport_, {.observer = Observer(),
                                         .requests_per_second = config_.api_qps,
                                         .burst = config_.api_burst,
                                         .stop = stop});
    reconcile::JobReconciler jobs({writer, caches_, service_, events_, metrics_, clock_},
                                  [this] { return Settings(); });
    ShardReconciler reconciler(jobs, caches_.jobs, gate_);
    controller::Controller controller(clock_, reconciler, metrics_);
    // first: otherwise a job that arrives between the two calls would be in neither
    SetWork({&controller, &reconciler});
    auto led = LeadShards(controller, stop);
    SetWork({});
    metrics_.SetShards(0);
    return led;
  }

  Result<void> LeadShards(controller::Controller& controller, const std::stop_token& stop) {
    if (!config_.leader_elect) {
      (void)WorkOn(sharding::ShardSet().set());
    } else if (!lease_.Join(AdvertisedAddress(), stop)) {
      return {};
    }
    std::jthread labels;
    if (!config_.pod_name.empty()) {
      LOCKSTEP_TRY(rendezvous::LabelLeader(client_, OwnPod(), true));
      labels = std::jthread([this](const std::stop_token& over) {
        rendezvous::KeepLeaderLabel(
            client_, OwnPod(), [this] { return PodsOfReplicas(); }, over, PauseFor);
      });
    }
    controller.Start(config_.workers);
    const auto kept = config_.leader_elect ? lease_.Keep(stop) : AwaitStop(stop);
    if (!kept.ok()) EndAtOnce(kept.error().ToString());
    return {};
  }

  // Called by the thread that keeps the lease.
  sharding::ShardSet WorkOn(const sharding::ShardSet& shards) {
    const sharding::ShardSet before = gate_.open();
    const sharding::ShardSet worked_on = gate_.Open(shards);
    // Jobs of shards that were handed over belong to another replica: their metrics and rendezvous end here.
    if (const auto ended = hosted_ & ~worked_on; ended.any()) ForgetJobs(ended);
    hosted_ = (hosted_ & worked_on) | shards;
    if (shards == before) return worked_on;
    metrics_.SetShards(shards.count());
    log::Info("leading", {{"rendezvous_port", rendezvous_port_},
                          {"shards", shards.count()},
                          {"of", sharding::kShards},
                          {"jobs", caches_.jobs.size()}});
    if ((shards & ~before).any()) {
      EnqueueAll();
      watches_.CheckOwners();
    }
    return worked_on;
  }

  rendezvous::HostedAt HostOf(const protocol::JobIdentity& job) const {
    if (gate_.IsOpenTo(job.uid)) return {};
    return {.is_here = false, .address = lease_.AddressOf(sharding::ShardOf(job.uid))};
  }

  // The address that other replicas return to workers of jobs that this one leads. Empty: these workers retry
  // the common address until they reach this replica.
  [[nodiscard]] std::string AdvertisedAddress() const {
    const auto served = http::SplitHostPort(config_.rendezvous_address);
    const std::string host = config_.pod_ip.empty() && served.ok() ? served->host : config_.pod_ip;
    return host.empty() ? "" : http::JoinHostPort(host, rendezvous_port_);
  }

  [[nodiscard]] std::set<std::string> PodsOfReplicas() const {
    std::set<std::string> pods;
    for (const std::string& identity : lease_.Replicas()) pods.insert(sharding::PodOf(identity));
    return pods;
  }

  // A replica that lost the lease must not write again, not even to complete a reconcile.
  [[noreturn]] static void EndAtOnce(const std::string& error) {
    log::Error("lost the leader lease, ending at once", {{"error", error}});
    std::_Exit(1);
  }

  static Result<void> AwaitStop(const std::stop_token& stop) {
    std::atomic<bool> stopped = false;
    const std::stop_callback wake(stop, [&] {
      stopped = true;
      stopped.notify_all();
    });
    stopped.wait(false);
    return {};
  }

  [[nodiscard]] kube::ObjectKey OwnPod() const { return {name_space_, config_.pod_name}; }

  // One attempt: the next leader removes a label that remains.
  void Unlabel() {
    const auto done = rendezvous::LabelLeader(client_, OwnPod(), false);
    if (!done.ok()) log::Warning("could not remove the leader's label", {{"error", done.error().ToString()}});
  }

  // Exists only while this process leads. Keys that arrive before are not needed: all jobs of a shard are
  // queued once the shard is led.
  struct Work {
    controller::Controller* controller = nullptr;
    ShardReconciler* reconciler = nullptr;
  };

  void SetWork(const Work& work) {
    const MutexLock lock(work_mutex_);
    work_ = work;
  }
  void Enqueue(const std::string& key) {
    const MutexLock lock(work_mutex_);
    if (work_.controller != nullptr && work_.reconciler->IsOurs(key)) work_.controller->Enqueue(key);
  }
  void EnqueueAll() {
    for (const kube::Object& job : caches_.jobs.All()) Enqueue(kube::KeyOf(*job).ToString());
  }
  void EnqueueSoon(const std::string& key) {
    const MutexLock lock(work_mutex_);
    if (work_.controller != nullptr && work_.reconciler->IsOurs(key)) work_.controller->EnqueueSoon(key);
  }
  void ForgetJobs(const sharding::ShardSet& shards) {
    const MutexLock lock(work_mutex_);
    if (work_.reconciler != nullptr) work_.reconciler->Forget(shards);
  }
  std::size_t QueueDepth() {
    const MutexLock lock(work_mutex_);
    return work_.controller == nullptr ? 0 : work_.controller->depth();
  }

  const OperatorConfig& config_;
  const std::string name_space_;
  const std::string identity_;
  const SystemClock clock_;
  Mutex work_mutex_;
  Work work_ LOCKSTEP_GUARDED_BY(work_mutex_);
  sharding::ShardGate gate_;
  // shards whose jobs the reconciler may track; used by the thread that keeps the lease
  sharding::ShardSet hosted_;
  int rendezvous_port_ = 0;  // set before the thread that keeps the lease starts
  std::atomic<bool> caches_synced_ = false;
  telemetry::Metrics metrics_;
  http::HttpTransport& transport_;
  kube::RestClient client_;  // for everything except the reconciler, the reviewer and the lease
  kube::RestClient lease_client_;
  sharding::ShardLease lease_;
  kube::EventRecorder events_;
  reconcile::Caches caches_;
  rendezvous::RendezvousService service_;
  kube::RestClient review_client_;
  rendezvous::TokenReviewer reviewer_;           // its threads call service_, so it ends first
  std::optional<MetricsAccess> metrics_access_;  // only if metrics need authorisation
  http::ServerCertificate made_certificate_;     // for these metrics, if the rendezvous has no certificate
  std::optional<rendezvous::CertificateKeeper> certificates_;  // only if the rendezvous is served over TLS
  rendezvous::PodFeed pod_feed_;
  Watches watches_;
};

}  // namespace

Result<void> RunOperator(const OperatorConfig& config, const kube::ClientConfig& client,
                         http::HttpTransport& api_server, const std::stop_token& stop) {
  Process process(config, client, api_server);
  return process.Run(stop);
}

}  // namespace lockstep

#pragma once
// A small API server in memory: versions, conflicts, uids, owner-less deletion, watches that follow a log.
// Enough for unit tests; what the real one does is tested against the real one (tests/integration).

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "operator/kube/client.h"

namespace lockstep::testing {

class FakeKube final : public kube::KubeClient {
 public:
  // Asked before each write ("POST", "pods", key); an error is returned instead of writing.
  std::function<std::optional<Error>(const std::string& verb, const std::string& plural,
                                     const kube::ObjectKey&)>
      fault;

  Result<Json> Get(const kube::Resource& resource, const kube::ObjectKey& key) override;
  Result<kube::ListPage> List(const kube::Resource& resource, const kube::ListOptions& options,
                              std::stop_token stop) override;
  Result<void> Watch(const kube::Resource& resource, const kube::WatchOptions& options,
                     const std::function<bool(kube::WatchEvent)>& on_event, std::stop_token stop) override;
  Result<Json> Create(const kube::Resource& resource, const Json& object) override;
  Result<Json> Replace(const kube::Resource& resource, const Json& object) override;
  Result<Json> Patch(const kube::Resource& resource, const kube::ObjectKey& key, const Json& patch,
                     const kube::PatchOptions& options) override;
  Result<Json> Delete(const kube::Resource& resource, const kube::ObjectKey& key,
                      const kube::DeleteOptions& options) override;

  // Asked before each Get of an object.
  std::function<std::optional<Error>(const kube::ObjectKey&)> why_unreadable;
  // Asked after each write; true: it is done, but the answer is lost.
  std::function<bool(const std::string& verb, const std::string& plural, const kube::ObjectKey&)> lose_answer;

  // Ends every watch under way, and forgets the log before now: the next resume is answered with 410.
  void Compact();
  [[nodiscard]] std::vector<std::string> writes() const;  // "POST pods/a", in order
  [[nodiscard]] std::vector<Json> all(const kube::Resource& resource) const;

 private:
  struct Logged {
    int64_t version;
    std::string plural;
    kube::WatchEvent event;
  };
  using Objects = std::map<kube::ObjectKey, Json>;

  std::optional<Error> Fault(const std::string& verb, const kube::Resource& resource,
                             const kube::ObjectKey& key);
  Result<Json> Answer(const std::string& verb, const kube::Resource& resource, Json object);
  Json Store(const kube::Resource& resource, Json object, kube::WatchEventType type);  // requires mutex_

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, Objects> objects_;  // by plural
  std::vector<Logged> log_;
  std::vector<std::string> writes_;
  int64_t version_ = 10;
  int64_t compacted_ = 0;
  int64_t next_uid_ = 1;
};

}  // namespace lockstep::testing

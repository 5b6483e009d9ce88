#pragma once
// The keys that sign requests to S3: those of the settings, or else what the AWS SDK finds. It looks for a
// workload identity (IRSA), a profile, the service that AWS_CONTAINER_CREDENTIALS_* names (EKS Pod Identity,
// ECS) and the role of the machine.
//
// Found keys expire, and the SDK renews them. If their source is away at that time, the SDK sends requests
// without keys or with expired ones, and the store denies them. That is an outage, not a decision about
// rights. Any thread.

#include <arrow/filesystem/s3fs.h>

#include <atomic>
#include <memory>
#include <string>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"
#include "runtime/storage/s3_settings.h"

namespace lockstep::storage {

class S3Credentials {
 public:
  // kInvalidArgument: no keys are found, and the environment names no source that may be away. Takes up to 10 s
  // then, if the address of the machine's metadata service swallows requests.
  [[nodiscard]] static Result<std::shared_ptr<S3Credentials>> Find(const S3Settings& settings);

  // By the settings.
  [[nodiscard]] bool are_given() const { return are_given_; }
  // The defaults, with these credentials.
  [[nodiscard]] const arrow::fs::S3Options& options() const { return options_; }
  // A request was denied: whether that may be due to keys that were missing then and are available now.
  [[nodiscard]] bool HaveComeBack();
  // A request was denied finally: whether that may be due to the source of the keys. May ask the source, which
  // takes a few seconds.
  [[nodiscard]] bool AreAway();
  // For errors.
  [[nodiscard]] std::string source() const;
  // The settings with the keys of this moment. kUnavailable: the source is away.
  [[nodiscard]] Result<S3Settings> Complete(S3Settings settings);

 private:
  explicit S3Credentials(const S3Settings& settings);
  // Asks their source if there are none that are valid.
  [[nodiscard]] bool AreThere();

  const SystemClock clock_;
  const bool are_given_;
  const std::string named_source_;  // the variable that names it; empty: none does
  arrow::fs::S3Options options_;
  std::atomic<SteadyTime> last_away_ = SteadyTime{};
};

}  // namespace lockstep::storage

#pragma once
// The rendezvous' own certificate authority and server certificate, made by the operator and kept in a
// Secret, so that every leader serves the same one. Valid for ten years; rotation is not automatic: delete
// the Secret and restart the operator and the jobs.

#include <string>
#include <vector>

#include "operator/kube/client.h"
#include "runtime/common/base/result.h"

namespace lockstep::rendezvous {

struct ServerIdentity {
  std::string ca_pem;  // what workers trust
  std::string certificate_pem;
  std::string key_pem;
};

// An EC P-256 authority that signs one server certificate for `dns_names`; its own key is thrown away. Pure
// but for the random numbers.
[[nodiscard]] Result<ServerIdentity> MakeServerIdentity(const std::vector<std::string>& dns_names);

// Reads the Secret, or makes it. Two operators that race end with the same identity: the one who lost reads.
[[nodiscard]] Result<ServerIdentity> EnsureServerIdentity(kube::KubeClient& client,
                                                          const kube::ObjectKey& secret,
                                                          const std::vector<std::string>& dns_names);

}  // namespace lockstep::rendezvous

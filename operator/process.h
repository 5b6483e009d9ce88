#pragma once
// The life of the operator's process: serve health, fill caches, wait for leadership, then serve the
// rendezvous and reconcile until a signal or the loss of the lease. Called by main.

#include <stop_token>

#include "operator/config.h"
#include "operator/kube/client_config.h"

namespace lockstep {

// `client` describes the API server behind `api_server`. Blocks until `stop` (then the lease is released) or
// a failure that ends the process.
[[nodiscard]] Result<void> RunOperator(const OperatorConfig& config, const kube::ClientConfig& client,
                                       http::HttpTransport& api_server, const std::stop_token& stop);

}  // namespace lockstep

#pragma once
// The objects beside the pods, one of each kind at most: the Service and the ConfigMap of every job, and what
// its spec asks for: an account, a network policy, a disruption budget, an autoscaler. Pure.
//
// Why an account: pods of the job act as nobody else in the namespace, whatever rights others were given. It
// has none, and no token but the one that only the rendezvous accepts is mounted.

#include <array>
#include <string>
#include <vector>

#include "operator/kube/object.h"
#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

inline constexpr kube::Resource kServiceAccounts{"", "v1", "serviceaccounts", "ServiceAccount"};
inline constexpr kube::Resource kNetworkPolicies{"networking.k8s.io", "v1", "networkpolicies",
                                                 "NetworkPolicy"};
inline constexpr kube::Resource kDisruptionBudgets{"policy", "v1", "poddisruptionbudgets",
                                                   "PodDisruptionBudget"};
inline constexpr kube::Resource kAutoscalers{"autoscaling", "v2", "horizontalpodautoscalers",
                                             "HorizontalPodAutoscaler"};
inline constexpr std::array kOwnedKinds = {kube::kServices,  kube::kConfigMaps,  kServiceAccounts,
                                           kNetworkPolicies, kDisruptionBudgets, kAutoscalers};

// "podgroups.v1alpha1.scheduling.x-k8s.io", as kubectl writes it: how the kinds of a job's objects are told
// apart in maps.
[[nodiscard]] std::string KeyOfKind(const kube::Resource& resource);

struct OwnedObject {
  kube::Resource resource;
  Json object;
  bool is_immutable = false;  // the API server refuses changes: it stays as it was made
};

// All that the job wants now.
[[nodiscard]] std::vector<OwnedObject> DesiredOwnedObjects(const api::TrainingJob& job,
                                                           const ClusterSettings& settings);

// Whether `actual` is what `desired` says, but for what the API server writes in its own way.
[[nodiscard]] bool IsAsDesired(const OwnedObject& desired, const Json& actual);

// Whether the pods run under the job's own account: it is asked for, and their template names no other.
[[nodiscard]] bool HasOwnAccount(const api::TrainingJob& job);

}  // namespace lockstep::reconcile

#pragma once
// The objects of a job other than its pods, at most one of each kind: the Service and the ConfigMap that
// every job has, and those that its spec asks for: a service account, a network policy, a disruption budget,
// an autoscaler. Pure.
//
// A job has an account of its own so that its pods get no rights that were granted to another account of the
// namespace. The account itself has no rights, and only the token for the rendezvous is mounted.

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

// "podgroups.v1alpha1.scheduling.x-k8s.io", as kubectl writes it: the key of a kind in maps.
[[nodiscard]] std::string KeyOfKind(const kube::Resource& resource);

struct OwnedObject {
  kube::Resource resource;
  Json object;
  bool is_immutable = false;  // the API server rejects changes of this object, so it keeps its first version
};

// All objects that the job needs now.
[[nodiscard]] std::vector<OwnedObject> DesiredOwnedObjects(const api::TrainingJob& job,
                                                           const ClusterSettings& settings);

// Whether `actual` matches `desired`, ignoring what the API server writes in another form.
[[nodiscard]] bool IsAsDesired(const OwnedObject& desired, const Json& actual);

// Whether the pods use the job's own account: the spec asks for it, and their template names no other.
[[nodiscard]] bool HasOwnAccount(const api::TrainingJob& job);

}  // namespace lockstep::reconcile

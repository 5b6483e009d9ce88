-- Health of a DistributedTrainingJob for Argo CD, like that of a Job: Progressing until it is complete. In the ConfigMap argocd-cm:
--   resource.customizations.health.lockstep.dev_DistributedTrainingJob: |
--     (this file)
local status = obj.status
if status == nil or status.conditions == nil or
    (status.observedGeneration ~= nil and status.observedGeneration < obj.metadata.generation) then
  return { status = "Progressing", message = "The operator has not reconciled it yet" }
end

-- The first that is true decides.
local healths = {
  { "Failed", "Degraded" },
  { "Complete", "Healthy" },
  { "Suspended", "Suspended" },
  { "Stalled", "Degraded" },
  { "Restarting", "Progressing" },
  { "Progressing", "Progressing" },
}
for _, row in ipairs(healths) do
  for _, condition in ipairs(status.conditions) do
    if condition.type == row[1] and condition.status == "True" then
      return { status = row[2], message = condition.message }
    end
  end
end
return { status = "Progressing", message = status.state }

-- Is an InferenceDeployment healthy? Its conditions are those of kstatus: Ready is good when True,
-- Reconciling and Stalled are there only while they hold.
local function said(condition)
  if condition.message ~= nil and condition.message ~= "" then
    return condition.reason .. ": " .. condition.message
  end
  return condition.reason
end

local health = { status = "Progressing", message = "The operator has not answered yet." }
local status = obj.status
if status == nil or status.conditions == nil then
  return health
end
if status.observedGeneration == nil or status.observedGeneration ~= obj.metadata.generation then
  health.message = "The operator has not answered to the newest spec yet."
  return health
end

local found = {}
for _, condition in ipairs(status.conditions) do
  found[condition.type] = condition
end
if found.Stalled ~= nil and found.Stalled.status == "True" then
  health.status = "Degraded"
  -- where Planned is what stalls, it has the numbers and the way out
  local cause = found.Stalled
  if found.Planned ~= nil and found.Planned.status == "False" then
    cause = found.Planned
  end
  health.message = said(cause)
  return health
end
if found.Reconciling ~= nil and found.Reconciling.status == "True" then
  health.message = said(found.Reconciling)
  return health
end
if found.Ready == nil or found.Ready.status ~= "True" then
  health.message = found.Ready ~= nil and said(found.Ready) or "Nothing is said of Ready yet."
  return health
end
health.status = "Healthy"
health.message = found.Ready.message
-- a worker that grows is being dealt with: told, not a fault of what was applied
if found.MemoryStable ~= nil and found.MemoryStable.status == "False" then
  health.message = found.MemoryStable.message
end
return health

{{- /* The gates of all InferenceDeployments. */}}
{{- define "plimsoll.gatePods" -}}
matchExpressions:
  - key: plimsoll.dev/deployment
    operator: Exists
  - key: app.kubernetes.io/component
    operator: In
    values: [gateway]
{{- end }}

{{- /* The workers of all of them, those that drain too. */}}
{{- define "plimsoll.workerPods" -}}
matchExpressions:
  - key: plimsoll.dev/deployment
    operator: Exists
  - key: app.kubernetes.io/component
    operator: In
    values: [worker, worker-draining]
{{- end }}

{{- /* A target's label deployment, from the pod's own. */}}
{{- define "plimsoll.deploymentLabel" -}}
- sourceLabels: [__meta_kubernetes_pod_label_plimsoll_dev_deployment]
  targetLabel: deployment
{{- end }}

{{- /* Where an alert's runbook is: a link below the site that was named, else the file in the repository. */}}
{{- define "plimsoll.runbook" -}}
{{- printf "%s#%s" (default "docs/alerts.md" .url) (lower .alert) }}
{{- end }}

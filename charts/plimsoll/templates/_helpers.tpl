{{- /* Name of all objects; 52 characters leave room for what Kubernetes appends. */}}
{{- define "plimsoll.fullname" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "plimsoll.selectorLabels" -}}
app.kubernetes.io/name: plimsoll
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "plimsoll.labels" -}}
{{ include "plimsoll.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Of all that is the agents': DaemonSet, service account, role, policy. */}}
{{- define "plimsoll.agentName" -}}
{{ include "plimsoll.fullname" . }}-agent
{{- end }}

{{- define "plimsoll.agentSelectorLabels" -}}
app.kubernetes.io/name: plimsoll
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end }}

{{- define "plimsoll.agentLabels" -}}
{{ include "plimsoll.agentSelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Of the pod of `helm test`. */}}
{{- define "plimsoll.testLabels" -}}
app.kubernetes.io/name: plimsoll
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: test
{{- end }}

{{- /* The operator's settings that have a value of their own here; operator.extraEnv goes before them. */}}
{{- define "plimsoll.settings" -}}
{{- with .Values.operator.namespaces }}
PLIMSOLL_NAMESPACES: {{ join "," . | quote }}
{{- end }}
PLIMSOLL_WATCH_SECONDS: {{ .Values.watching.everySeconds | quote }}
PLIMSOLL_STALE_SECONDS: {{ .Values.watching.staleSeconds | quote }}
PLIMSOLL_HISTORY_HOURS: {{ .Values.watching.historyHours | quote }}
PLIMSOLL_SETTLE_SECONDS: {{ .Values.recycling.settleSeconds | quote }}
PLIMSOLL_ALLOW_HOST_PATH: {{ .Values.security.hostPath | quote }}
PLIMSOLL_ALLOW_FOREIGN_CODE: {{ .Values.security.trustRemoteCode | quote }}
{{- with .Values.security.images }}
PLIMSOLL_ALLOWED_IMAGES: {{ join "," . | quote }}
{{- end }}
{{- if .Values.watching.kubelet.caConfigMap }}
PLIMSOLL_KUBELET_CA_FILE: /etc/plimsoll-kubelet/{{ .Values.watching.kubelet.caKey }}
{{- end }}
{{- if .Values.watching.kubelet.insecureTLS }}
PLIMSOLL_KUBELET_INSECURE_TLS: "true"
{{- end }}
{{- with .Values.watching.prometheus.url }}
PLIMSOLL_PROMETHEUS_URL: {{ . | quote }}
{{- end }}
{{- if .Values.watching.prometheus.tokenSecret }}
PLIMSOLL_PROMETHEUS_TOKEN_FILE: /etc/plimsoll-prometheus-token/{{ .Values.watching.prometheus.tokenKey }}
{{- end }}
{{- if .Values.watching.prometheus.caConfigMap }}
PLIMSOLL_PROMETHEUS_CA_FILE: /etc/plimsoll-prometheus/{{ .Values.watching.prometheus.caKey }}
{{- end }}
{{- end }}

{{- define "plimsoll.dnsEgress" -}}
# DNS.
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
  to:
    - namespaceSelector: {}
      podSelector:
        matchLabels:
          {{- toYaml .Values.networkPolicy.dns.podLabels | nindent 10 }}
{{- end }}

{{- /* Ways out that operator and agents share: DNS and the API server. */}}
{{- define "plimsoll.egress" -}}
{{ include "plimsoll.dnsEgress" . }}
# The API server.
- ports:
    {{- range .Values.networkPolicy.apiServer.ports }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with .Values.networkPolicy.apiServer.cidrs }}
  to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  {{- end }}
{{- end }}

{{- define "plimsoll.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "plimsoll.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* Whoever names a digest is asked for nothing more. */}}
{{- define "plimsoll.checkovOfImages" -}}
{{- if not .Values.image.digest }}
checkov.io/skip8: CKV_K8S_43=the digest is the site's to name, in image.digest
{{- if ne .Values.image.pullPolicy "Always" }}
checkov.io/skip9: CKV_K8S_15=a release's tag does not move, so a node that has the image need not reach the registry
{{- end }}
{{- end }}
{{- end }}

{{- define "plimsoll.image" -}}
{{- $path := .Values.image.repository }}
{{- if .Values.image.registry }}{{ $path = printf "%s/%s" .Values.image.registry $path }}{{ end }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $path .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $path (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* Annotations of a CRD: kept on uninstall, and applied the way that large objects need. */}}
{{- define "plimsoll.crdAnnotations" -}}
{{- if .Values.crds.keep -}}
helm.sh/resource-policy: keep
{{- end }}
argocd.argoproj.io/sync-options: ServerSideApply=true
argocd.argoproj.io/sync-wave: "-10"
{{- end }}

{{/* The prefix of all names: the release's name, with the chart's unless it is in there. Short enough for "-rendezvous" in 63. */}}
{{- define "lockstep.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* The prefix of cluster-wide names: releases of one name may live in several namespaces. */}}
{{- define "lockstep.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "lockstep.fullname" .) -}}
{{- end -}}

{{/* What selects the operator's pods; must never change, or upgrades fail. */}}
{{- define "lockstep.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* Of the pod of `helm test`; never those of the operator's, or the Services would lead to it. */}}
{{- define "lockstep.testLabels" -}}
app.kubernetes.io/name: {{ printf "%s-test" (default .Chart.Name .Values.nameOverride | trunc 58) }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lockstep.labels" -}}
{{ include "lockstep.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: lockstep
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The value namespaceSelector as text, as in `kubectl get --selector`. */}}
{{- define "lockstep.namespaceSelector" -}}
{{- $terms := list -}}
{{- range $key, $value := .Values.namespaceSelector.matchLabels -}}
{{- $terms = append $terms (printf "%s=%s" $key $value) -}}
{{- end -}}
{{- range .Values.namespaceSelector.matchExpressions -}}
{{- $text := .key -}}
{{- if has .operator (list "In" "NotIn") -}}
{{- $text = printf "%s %s (%s)" .key (lower .operator) (join "," .values) -}}
{{- else if eq .operator "DoesNotExist" -}}
{{- $text = printf "!%s" .key -}}
{{- end -}}
{{- $terms = append $terms $text -}}
{{- end -}}
{{- join "," $terms -}}
{{- end -}}

{{/* The Secret of a certificate that somebody else keeps; empty: the operator keeps its own. */}}
{{- define "lockstep.certificateSecret" -}}
{{- if .Values.certificate.issuerRef -}}
{{- include "lockstep.fullname" . }}-rendezvous-certificate
{{- else -}}
{{- .Values.certificate.secretName -}}
{{- end -}}
{{- end -}}

{{/* The name of the port of /healthz and /readyz: that of the metrics, too, where these are for everybody. */}}
{{- define "lockstep.healthPort" -}}
{{- ternary "health" "metrics" .Values.metrics.authorization -}}
{{- end -}}

{{- define "lockstep.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "lockstep.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "lockstep.image" -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end -}}
{{- end -}}

{{/* Labels of everything; the selector's are those of deploy/hajob.yaml. */}}
{{- define "hajob.labels" -}}
app.kubernetes.io/name: hajob-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.extraLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "hajob.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "hajob.subject" -}}
subjects:
- {kind: ServiceAccount, name: hajob-operator, namespace: {{ .Release.Namespace }}}
{{- end }}

{{/* The namespaces that are served, as JSON; none: all. Values kept from 0.1 (--reuse-values) have no list. */}}
{{- define "hajob.namespaces" -}}
{{ concat (.Values.watchNamespaces | default list) (list .Values.watchNamespace) | compact | uniq | toJson }}
{{- end }}

{{/* Rights in the namespaces of jobs. */}}
{{- define "hajob.jobRules" -}}
- {apiGroups: [training.hajob.io], resources: [hatrainingjobs], verbs: [get, list, watch, patch, delete]}
- {apiGroups: [training.hajob.io], resources: [hatrainingjobs/status], verbs: [patch]}
- {apiGroups: [training.hajob.io], resources: [hatrainingjobs/finalizers], verbs: [update]}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch, create, patch, delete]}
# a spare's node is kept for the pod that comes onto it (status.nominatedNodeName)
- {apiGroups: [""], resources: [pods/status], verbs: [patch]}
- {apiGroups: [""], resources: [resourcequotas], verbs: [list, watch]}
# whether that of the checkpoints can be mounted by all ranks
- {apiGroups: [""], resources: [persistentvolumeclaims], verbs: [get]}
- {apiGroups: [""], resources: [secrets], verbs: [get, create, update]}
- {apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [get, create, patch]}
# list: why a pod does not start, where its status does not say it
- {apiGroups: [""], resources: [events], verbs: [create, list]}
{{- if (.Values.volcano).enabled }}
- {apiGroups: [scheduling.volcano.sh], resources: [podgroups], verbs: [create, patch, delete]}
{{- end }}
{{- if (.Values.kueue).enabled }}
- {apiGroups: [kueue.x-k8s.io], resources: [workloads], verbs: [list, watch, create, patch, delete]}
- {apiGroups: [kueue.x-k8s.io], resources: [workloads/status], verbs: [patch]}
{{- end }}
{{- end }}

{{/* Settings of the operator that are not the default, as environment variables. */}}
{{- define "hajob.variable" -}}
- {name: {{ .name }}, value: {{ .value | toString | quote }}}
{{- end }}

{{/* Refuses times with which two operators would lead at once; the operator's own check says the same. */}}
{{- define "hajob.leaseTimes" -}}
{{- $lease := float64 .Values.settings.leaseSeconds }}
{{- $renew := float64 .Values.settings.leaseRenewSeconds }}
{{- $retry := float64 .Values.settings.leaseRetrySeconds }}
{{- if not (and (gt $lease $renew) (gt $renew $retry)) }}
{{- fail (printf "settings.leaseSeconds=%v, settings.leaseRenewSeconds=%v, settings.leaseRetrySeconds=%v: each must be larger than the next" $lease $renew $retry) }}
{{- end }}
{{- end }}

{{/* A value as CEL: JSON, with every part dyn, since a literal's parts must be of one type. */}}
{{- define "hajob.cel" -}}
{{- $parts := list -}}
{{- if kindIs "map" . -}}
{{- range $name, $value := . }}{{ $parts = append $parts (printf "%s: %s" (toJson $name) (include "hajob.cel" $value)) }}{{ end -}}
dyn({ {{- join ", " $parts -}} })
{{- else if kindIs "slice" . -}}
{{- range . }}{{ $parts = append $parts (include "hajob.cel" .) }}{{ end -}}
dyn([ {{- join ", " $parts -}} ])
{{- else -}}
dyn({{ toJson . }})
{{- end -}}
{{- end }}

{{- define "connect-py.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "connect-py.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "connect-py.labels" -}}
{{ include "connect-py.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* worker.properties: backslashes and line ends as Java reads them. */}}
{{- define "connect-py.properties" -}}
{{- range $key, $value := .Values.properties }}
{{- $text := kindIs "string" $value | ternary $value (toJson $value) }}{{/* toString makes 1e+07 of a large number */}}
{{ $key }}={{ $text | replace "\\" "\\\\" | replace "\n" "\\n" }}
{{- end }}
{{- end -}}

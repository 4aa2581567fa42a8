{{/* The chart's name, as labels have it. */}}
{{- define "stream-dedup.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/*
The name of all objects. 52 characters: a StatefulSet's pods and revisions add up to 11, and
63 is what a label holds.
*/}}
{{- define "stream-dedup.fullname" -}}
{{- $name := include "stream-dedup.name" . -}}
{{- $whole := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $whole .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* The labels that select this release's pods; they never change. */}}
{{- define "stream-dedup.selector" -}}
app.kubernetes.io/name: {{ include "stream-dedup.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "stream-dedup.labels" -}}
{{ include "stream-dedup.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: worker
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The labels of the web application's pods: the workers' do not select them. */}}
{{- define "stream-dedup.uiSelector" -}}
app.kubernetes.io/name: {{ include "stream-dedup.name" . }}-ui
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "stream-dedup.uiLabels" -}}
{{ include "stream-dedup.uiSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: ui
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The namespaces in Redis that the web application shows, as a JSON list. */}}
{{- define "stream-dedup.uiNamespaces" -}}
{{- $names := list -}}
{{- range .Values.config.pipelines -}}
{{- $names = append $names (default (default "logs" .recipe) .namespace) -}}
{{- end -}}
{{- default ($names | uniq) .Values.ui.namespaces | toJson -}}
{{- end -}}

{{- define "stream-dedup.serviceAccount" -}}
{{- $made := ternary (include "stream-dedup.fullname" .) "default" .Values.serviceAccount.create -}}
{{- default $made .Values.serviceAccount.name -}}
{{- end -}}

{{- define "stream-dedup.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "stream-dedup.workload" -}}
{{- ternary "StatefulSet" "Deployment" .Values.staticMembership.enabled -}}
{{- end -}}

{{/* The folder that secrets are mounted in. */}}
{{- define "stream-dedup.secretsFolder" -}}/run/secrets/stream-dedup{{- end -}}

{{/* Whether there are secrets, and whether some are made by the chart: "true" or nothing. */}}
{{- define "stream-dedup.hasSecrets" -}}
{{- if or .Values.secrets.kafka .Values.secrets.index .Values.secrets.otel -}}true{{- end -}}
{{- end -}}

{{- define "stream-dedup.makesSecret" -}}
{{- range $keys := .Values.secrets -}}
{{- range $keys -}}
{{- if hasKey . "value" -}}true{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
A table's keys as TOML, from a map. What JSON writes of a text, a number, a truth or a list of texts
is TOML too. A null is a key not given.
*/}}
{{- define "stream-dedup.keys" -}}
{{- range $key, $value := . }}
{{- if not (kindIs "invalid" $value) }}
{{ $key }} = {{ toRawJson $value }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The worker's configuration, from config and secrets. */}}
{{- define "stream-dedup.toml" -}}
# Made by Helm from the values config and secrets of release {{ .Release.Name }}.
{{- range $section := list "kafka" "index" "worker" "http" "log" "otel" }}
{{- $table := deepCopy (default dict (get $.Values.config $section)) }}
{{- range $key, $_ := default dict (get $.Values.secrets $section) }}
{{- $_ := set $table $key (printf "%s/%s.%s" (include "stream-dedup.secretsFolder" $) $section $key) }}
{{- end }}
{{- if $table }}

[{{ $section }}]
{{- include "stream-dedup.keys" $table }}
{{- end }}
{{- end }}
{{- range .Values.config.pipelines }}

[[pipelines]]
{{- include "stream-dedup.keys" . }}
{{- end }}
{{ end -}}

{{/* A duration such as 10, "10s" or "1m" in whole seconds, rounded up. */}}
{{- define "stream-dedup.seconds" -}}
{{- $text := toString . | trim -}}
{{- $number := regexFind "^[0-9.]+" $text | default "0" | float64 -}}
{{- $unit := regexFind "[a-z]+$" $text -}}
{{- $scale := get (dict "us" 0.000001 "ms" 0.001 "m" 60.0 "h" 3600.0 "d" 86400.0) $unit | default 1.0 -}}
{{- mulf $number $scale | ceil | int -}}
{{- end -}}

{{/* The consumer group of a pipeline: (dict "kafka" … "pipeline" …). */}}
{{- define "stream-dedup.group" -}}
{{- $made := printf "%s-%s" (default "stream-dedup" .kafka.group_id) (default "main" .pipeline.name) -}}
{{- default $made .pipeline.group_id -}}
{{- end -}}

{{/* Not empty if there is a network policy. */}}
{{- define "stream-dedup.hasNetworkPolicy" -}}
{{- with .Values.networkPolicy -}}
{{- if eq (toString .enabled) "auto" -}}{{ .metricsNamespace }}{{- else if .enabled -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* All checks that a schema cannot express; fails with every problem and its remedy. */}}
{{- define "stream-dedup.check" -}}
{{- $problems := list -}}
{{- $config := .Values.config -}}
{{- $kafka := $config.kafka -}}
{{- $url := default "" $config.index.url -}}
{{- if not $kafka.bootstrap_servers -}}
{{- $problems = append $problems "config.kafka.bootstrap_servers is empty; name brokers, as in [kafka-bootstrap.kafka:9092]" -}}
{{- end -}}
{{- if and (not $url) (ne (default "redis" $config.index.kind) "memory") -}}
{{- $problems = append $problems "config.index.url is empty; say where Redis is, as in redis://redis.redis:6379" -}}
{{- end -}}
{{- if regexMatch "^[^@]*://[^@]*:.*@" $url -}}
{{- $problems = append $problems "config.index.url holds a password, which would stand in a ConfigMap; take it out, and give it by secrets.index.password_file" -}}
{{- end -}}
{{- if not $config.pipelines -}}
{{- $problems = append $problems "config.pipelines is empty; give a pipeline with topics and output_topic" -}}
{{- end -}}
{{- $drain := include "stream-dedup.seconds" (default "10s" $config.worker.drain_s) | int -}}
{{- $least := add (mul 4 $drain) 10 -}}
{{- if lt (int .Values.terminationGracePeriodSeconds) (int $least) -}}
{{- $problems = append $problems (printf "terminationGracePeriodSeconds is %d, but a stop may take %d s with config.worker.drain_s of %d s; give %d or more, or a smaller drain_s" (int .Values.terminationGracePeriodSeconds) $least $drain $least) -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if and (ne .type "none") (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- $problems = append $problems (printf "autoscaling.minReplicas is %d, which is above maxReplicas, %d; give less" (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- if and (eq .type "hpa") (not .lagPerWorker) (not .cpuPercent) -}}
{{- $problems = append $problems "autoscaling.type is hpa, but lagPerWorker and cpuPercent are both 0; give one of them" -}}
{{- end -}}
{{- if and (eq .type "keda") (not .lagPerWorker) -}}
{{- $problems = append $problems "autoscaling.type is keda, but lagPerWorker is 0; give 1 or more" -}}
{{- end -}}
{{- $protocol := default "PLAINTEXT" $kafka.security_protocol -}}
{{- if and (eq .type "keda") (ne $protocol "PLAINTEXT") (not .triggerAuthentication) -}}
{{- $problems = append $problems (printf "autoscaling.triggerAuthentication is empty, but config.kafka.security_protocol is %s; name a TriggerAuthentication, so that KEDA may ask Kafka too" $protocol) -}}
{{- end -}}
{{- end -}}
{{- with .Values.networkPolicy -}}
{{- if include "stream-dedup.hasNetworkPolicy" $ -}}
{{- range $server := $kafka.bootstrap_servers -}}
{{- $port := regexFind ":[0-9]+$" $server | trimPrefix ":" | default "9092" | int -}}
{{- if not (has (toString $port) (toStrings $.Values.networkPolicy.kafka.ports)) -}}
{{- $problems = append $problems (printf "networkPolicy.kafka.ports lacks %d, the port of %s in config.kafka.bootstrap_servers; add it" $port $server) -}}
{{- end -}}
{{- end -}}
{{- range regexFindAll ":[0-9]+" (regexReplaceAll "^[a-z+]+://([^@]*@)?|\\[[^]]*\\]" $url "") -1 -}}
{{- if not (has (trimPrefix ":" .) (toStrings $.Values.networkPolicy.redis.ports)) -}}
{{- $problems = append $problems (printf "networkPolicy.redis.ports lacks %s, a port of config.index.url; add it" (trimPrefix ":" .)) -}}
{{- end -}}
{{- end -}}
{{- if $config.otel.enabled -}}
{{- range $key := list "endpoint" "traces_endpoint" "metrics_endpoint" -}}
{{- $port := regexFind ":[0-9]+" (regexReplaceAll "^[a-z]+://|\\[[^]]*\\]" (default "" (get $config.otel $key)) "") | trimPrefix ":" -}}
{{- if and $port (not (has $port (toStrings $.Values.networkPolicy.otel.ports))) -}}
{{- $problems = append $problems (printf "networkPolicy.otel.ports lacks %s, the port of config.otel.%s; add it" $port $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.ui -}}
{{- if .enabled -}}
{{- if not (or .token .userHeader) -}}
{{- $problems = append $problems "ui.token and ui.userHeader are both empty, so that everybody could read; name the Secret of a token, as in {secret: stream-dedup-ui, key: token}" -}}
{{- end -}}
{{- if eq (default "redis" $config.index.kind) "memory" -}}
{{- $problems = append $problems "ui.enabled is true, but config.index.kind is memory, which only its worker sees; take Redis" -}}
{{- end -}}
{{- if hasKey $.Values.secrets.index "sentinel_password_file" -}}
{{- $problems = append $problems "ui.enabled is true, but the web application knows no password of Sentinel, which secrets.index.sentinel_password_file gives; leave out one of them" -}}
{{- end -}}
{{- if and .recipe (not (hasKey $.Values.files .recipe)) -}}
{{- $problems = append $problems (printf "ui.recipe is %s, which is not in files; name one of them" .recipe) -}}
{{- end -}}
{{- if not .namespaces -}}
{{- range $config.pipelines -}}
{{- if and (not .namespace) (contains "." (default "logs" .recipe)) -}}
{{- $problems = append $problems (printf "ui.namespaces is empty, and a pipeline has the recipe %s and no namespace; list the namespaces, as in [logs]" .recipe) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n\nstream-dedup cannot be installed with these values:\n- %s\n" (join "\n- " $problems)) -}}
{{- end -}}
{{- end -}}

# Prometheus in the control plane's namespace, and beside it the program that tells it which pods want to be scraped.

prometheus_url() { echo "http://$api_address:9090"; }

start_prometheus() {
  local targets=$dir/prometheus-targets.json
  mkdir -p "$dir/prometheus"
  echo '[]' >"$targets"
  targets=$targets rules=$here/../../charts/lockstep/recording.yaml render "$here/config/prometheus.yaml" >"$dir/prometheus.yaml"
  spawn prometheus nsenter --net="/run/netns/$control" prometheus --config.file="$dir/prometheus.yaml" \
    --storage.tsdb.path="$dir/prometheus" --web.listen-address="$api_address:9090" --log.level=warn
  spawn discover-pods nsenter --net="/run/netns/$control" "$here/lib/discover_pods.py" "$api_url" "$pki" "$targets"
}

prometheus_ready() { curl -fsS --noproxy '*' --max-time 5 "$(prometheus_url)/-/ready"; }

prometheus_environment() {
  [ ! -e "$dir/pids/prometheus" ] || echo "export LOCKSTEP_PROMETHEUS_URL='$(prometheus_url)'"
}

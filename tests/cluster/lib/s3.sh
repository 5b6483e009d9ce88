# An S3 server (versitygw) over a plain folder, $dir/s3: a bucket is a folder in it, an object a file.

s3_region=us-east-1

s3_url() { echo "http://$api_address:7070"; }

start_s3() {
  local key secret
  mkdir -p "$dir/s3"
  [ -s "$dir/s3.credentials" ] || (umask 077 && echo "lockstep $(openssl rand -hex 20)" >"$dir/s3.credentials")
  read -r key secret <"$dir/s3.credentials"
  ROOT_ACCESS_KEY_ID=$key ROOT_SECRET_ACCESS_KEY=$secret spawn_in_control versitygw \
    --port "$api_address:7070" --region "$s3_region" --keep-alive posix "$dir/s3"
}

# s3_answers: any answer will do; unsigned requests are refused
s3_answers() { curl -s --noproxy '*' --max-time 5 -o /dev/null "$(s3_url)/"; }

make_bucket() { # make_bucket NAME: harmless when it exists
  local key secret
  [ -n "${1:-}" ] || die "make-bucket needs a name"
  alive versitygw || die "no S3 server here: start the cluster with --s3"
  [ ! -d "$dir/s3/$1" ] || return 0
  read -r key secret <"$dir/s3.credentials"
  curl -fsS --noproxy '*' --max-time 10 --aws-sigv4 "aws:amz:$s3_region:s3" --user "$key:$secret" \
    -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -X PUT "$(s3_url)/$1"
}

# The names are those of the Secret that a job's checkpoint.secretRef points to.
s3_environment() {
  local key secret
  [ -e "$dir/pids/versitygw" ] || return 0
  read -r key secret <"$dir/s3.credentials"
  cat <<SHELL
export AWS_ACCESS_KEY_ID='$key'
export AWS_SECRET_ACCESS_KEY='$secret'
export AWS_REGION='$s3_region'
export AWS_ENDPOINT_URL='$(s3_url)'
SHELL
}

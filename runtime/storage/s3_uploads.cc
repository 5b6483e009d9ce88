#include "runtime/storage/s3_uploads.h"

#include <curl/curl.h>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <cctype>
#include <memory>
#include <sstream>
#include <string_view>

#include "runtime/common/base/strings.h"

namespace lockstep::storage {
namespace {

namespace xml = boost::property_tree;

constexpr long kUploadConnectSeconds = 3;
constexpr long kSeconds = 10;
constexpr std::size_t kLongestAnswer = std::size_t{4} << 20;  // a thousand uploads have a quarter of it
constexpr std::size_t kLongestReason = 300;
// The SHA-256 of an empty body, which libcurl signs.
constexpr const char* kNoBody =
    "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

struct Answer {
  long status = 0;
  std::string body;
};

// Percent-encoding as required for a signature.
std::string Encoded(std::string_view text, std::string_view plain) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if ((byte < 0x80 && std::isalnum(byte) != 0) || plain.find(character) != std::string_view::npos) {
      encoded += character;
    } else {
      encoded += {'%', kDigits[byte / 16], kDigits[byte % 16]};
    }
  }
  return encoded;
}
std::string EncodedPath(std::string_view path) { return Encoded(path, "-._~/"); }
std::string EncodedValue(std::string_view value) { return Encoded(value, "-._~"); }

std::string BucketOf(const std::string& path) { return path.substr(0, path.find('/')); }
std::string KeyOf(const std::string& path) { return path.substr(BucketOf(path).size() + 1); }

// AWS's certificate covers virtual-hosted buckets, except for names with dots.
std::string UrlOf(const S3Settings& settings, const std::string& bucket, const std::string& key) {
  const std::string host = settings.endpoint.empty() ? AwsHost(settings.region) : settings.endpoint;
  const bool is_in_host =
      settings.addressing == Addressing::kVirtual && bucket.find('.') == std::string::npos;
  return settings.scheme + "://" + (is_in_host ? bucket + "." + host : host + "/" + bucket) + "/" +
         EncodedPath(key);
}

std::size_t Append(const char* bytes, std::size_t size, std::size_t count, void* body) {
  auto& text = *static_cast<std::string*>(body);
  if (text.size() + size * count > kLongestAnswer) return 0;  // an error
  text.append(bytes, size * count);
  return size * count;
}

Result<Answer> Ask(const S3Settings& settings, const char* method, const std::string& url) {
  const std::unique_ptr<CURL, void (*)(CURL*)> request(curl_easy_init(), curl_easy_cleanup);
  if (request == nullptr) return Error{ErrorCode::kInternal, "no libcurl"};
  const std::string token = "x-amz-security-token: " + settings.session_token;
  curl_slist* list = curl_slist_append(nullptr, kNoBody);
  if (!settings.session_token.empty()) list = curl_slist_append(list, token.c_str());
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, curl_slist_free_all);
  const std::string signature = "aws:amz:" + settings.region + ":s3";
  Answer answer;
  curl_easy_setopt(request.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(request.get(), CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(request.get(), CURLOPT_PROXY, settings.proxy.c_str());  // "": none, as in Arrow
  curl_easy_setopt(request.get(), CURLOPT_CUSTOMREQUEST, method);
  curl_easy_setopt(request.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(request.get(), CURLOPT_AWS_SIGV4, signature.c_str());
  curl_easy_setopt(request.get(), CURLOPT_USERNAME, settings.access_key.c_str());
  curl_easy_setopt(request.get(), CURLOPT_PASSWORD, settings.secret_key.c_str());
  curl_easy_setopt(request.get(), CURLOPT_CONNECTTIMEOUT, kUploadConnectSeconds);
  curl_easy_setopt(request.get(), CURLOPT_TIMEOUT, kSeconds);
  if (!settings.ca_file.empty()) curl_easy_setopt(request.get(), CURLOPT_CAINFO, settings.ca_file.c_str());
  curl_easy_setopt(request.get(), CURLOPT_NOSIGNAL, 1L);  // required with several threads
  curl_easy_setopt(request.get(), CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(request.get(), CURLOPT_WRITEDATA, &answer.body);
  const CURLcode code = curl_easy_perform(request.get());
  if (code != CURLE_OK) return Error{ErrorCode::kUnavailable, curl_easy_strerror(code)};
  curl_easy_getinfo(request.get(), CURLINFO_RESPONSE_CODE, &answer.status);
  return answer;
}

Result<xml::ptree> ReadXml(const std::string& text) {
  std::istringstream stream(text);
  xml::ptree tree;
  try {
    xml::read_xml(stream, tree);
  } catch (const xml::xml_parser_error& error) {
    return Error{ErrorCode::kUnavailable, error.what()};
  }
  return tree;
}

// " (HTTP status 403 AccessDenied: …)".
std::string ReasonOf(const Answer& answer) {
  const Result<xml::ptree> tree = ReadXml(answer.body);
  const std::string said =
      tree.ok() ? tree->get("Error.Code", "") + ": " + tree->get("Error.Message", "") : answer.body;
  return " (HTTP status " + std::to_string(answer.status) + " " + Truncate(said, kLongestReason) + ")";
}

Error Refused(const Answer& answer) {
  const std::string reason = ReasonOf(answer);
  switch (answer.status) {
    case 401:
    case 403:
      return {
          ErrorCode::kForbidden,
          "access denied; the key needs s3:ListBucketMultipartUploads and s3:AbortMultipartUpload" + reason};
    case 404: return {ErrorCode::kNotFound, "not found" + reason};
    case 405:
    case 501: return {ErrorCode::kUnsupported, "the server does not support it" + reason};
    default: return {ErrorCode::kUnavailable, "refused" + reason};
  }
}

// `what` is used in errors.
Result<Answer> AskFor(const S3Settings& settings, const char* method, const std::string& url,
                      const std::string& what) {
  LOCKSTEP_TRY(Answer answer, Ask(settings, method, url).WithContext(what));
  if (answer.status / 100 != 2) return Refused(answer).WithContext(what);
  return answer;
}

Result<std::vector<UnfinishedUpload>> ReadList(const std::string& text, const std::string& bucket) {
  LOCKSTEP_TRY(const xml::ptree tree, ReadXml(text));
  const auto list = tree.get_child_optional("ListMultipartUploadsResult");
  if (!list) return Error{ErrorCode::kUnavailable, "the server's answer is not a list of uploads"};
  std::vector<UnfinishedUpload> uploads;
  for (const auto& [name, upload] : *list) {
    if (name != "Upload") continue;
    uploads.push_back({bucket + "/" + upload.get("Key", ""), upload.get("UploadId", "")});
  }
  return uploads;
}

}  // namespace

Result<std::vector<UnfinishedUpload>> ListUploads(const S3Settings& settings, const std::string& beginning) {
  const std::string bucket = BucketOf(beginning);
  const std::string what = settings.use.field + ": unfinished uploads below s3://" + beginning;
  // In the order that a signature requires; libcurl does not sort parameters.
  const std::string query = "?prefix=" + EncodedValue(KeyOf(beginning)) + "&uploads=";
  LOCKSTEP_TRY(const Answer answer, AskFor(settings, "GET", UrlOf(settings, bucket, "") + query, what));
  LOCKSTEP_TRY(std::vector<UnfinishedUpload> uploads, ReadList(answer.body, bucket).WithContext(what));
  // Without an id, a DELETE would delete the object.
  std::erase_if(uploads,
                [&](const auto& upload) { return upload.id.empty() || !upload.path.starts_with(beginning); });
  return uploads;
}

Result<void> AbortUpload(const S3Settings& settings, const UnfinishedUpload& upload) {
  const std::string url =
      UrlOf(settings, BucketOf(upload.path), KeyOf(upload.path)) + "?uploadId=" + EncodedValue(upload.id);
  const std::string what = settings.use.field + ": unfinished upload to s3://" + upload.path;
  const Result<Answer> answer = AskFor(settings, "DELETE", url, what);
  if (answer.ok() || answer.error().code == ErrorCode::kNotFound) return {};
  return answer.error();
}

}  // namespace lockstep::storage

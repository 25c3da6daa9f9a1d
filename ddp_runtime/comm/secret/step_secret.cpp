// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/secret/step_secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/errors.h"
#include "base/file_descriptor.h"

namespace ddp::comm {
namespace {

constexpr std::string_view kFilePrefix = "file:";
constexpr std::string_view kPayloadPrefix = "slurm-ddp step key ";
constexpr std::size_t kLeastFileBytes = 16;
constexpr std::size_t kMaxFileBytes = 4096;

Key key_for_step(std::string_view secret, std::string_view use, const std::string& step) {
  return hmac_sha256(std::as_bytes(std::span(secret)), fmt::format("{} {}", use, step));
}

// Parses "4711.0:0123...". The text contains the step because other processes inherit the variable:
// children of mpirun in a task, and a step that is started inside this step on a node without the
// plugin.
std::optional<Key> plugin_key(const VariableLookup& variable, const std::string& step) {
  const auto text = variable(kStepKeyVariable);
  if (!text) return std::nullopt;
  const auto colon = text->rfind(':');
  if (colon == std::string::npos || text->substr(0, colon) != step) return std::nullopt;
  return key_from_hex(std::string_view(*text).substr(colon + 1));
}

// Key of Open MPI 4: 128 random bits in the environment of every rank, as two hexadecimal numbers.
// In a rank that was not started by mpirun, Open MPI sets a number that any user can compute, with
// less than 32 bits in each half.
std::optional<Key> launcher_key(const VariableLookup& variable, const std::string& step) {
  constexpr std::size_t kHalf = 16;
  constexpr std::string_view kSmall = "00000000";
  const auto text = variable("OMPI_MCA_orte_precondition_transports");
  if (!text || !variable("OMPI_COMM_WORLD_SIZE")) return std::nullopt;
  if (text->size() != 2 * kHalf + 1 || (*text)[kHalf] != '-') return std::nullopt;
  if (text->starts_with(kSmall) || text->substr(kHalf + 1).starts_with(kSmall)) return std::nullopt;
  return key_for_step(*text, "launcher", step);
}

void require_private(const struct stat& status, const std::string& path) {
  if (!S_ISREG(status.st_mode)) {
    throw UsageError(fmt::format("the key file {} is not a regular file", path));
  }
  if (status.st_uid != geteuid() || (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw UsageError(
        fmt::format("the key file {} must be owned by you and accessible only to you: chmod 600 {}",
                    path, path));
  }
}

Key key_of_file(const std::string& path, const std::string& step) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) {
    throw UsageError(fmt::format("cannot read the key file {}: {}", path, std::strerror(errno)));
  }
  require_private(status, path);
  std::array<char, kMaxFileBytes> bytes{};
  const ssize_t n = ::read(file.get(), bytes.data(), bytes.size());
  if (n < static_cast<ssize_t>(kLeastFileBytes)) {
    throw UsageError(fmt::format(
        "the key file {} contains fewer than {} bytes; create it with: head -c 32 /dev/urandom",
        path, kLeastFileBytes));
  }
  return key_for_step({bytes.data(), static_cast<std::size_t>(n)}, "file", step);
}

std::optional<StepSecret> munge_secret(const SecretOptions& options, const VariableLookup& variable,
                                       const MungeLoader& load, std::string& why_not) {
  const auto munge = load(variable(kMungeSocketVariable).value_or(""));
  if (!munge) {
    why_not = "libmunge.so.2 is not installed";
    return std::nullopt;
  }
  try {
    static_cast<void>(munge->encode(""));  // checks in every process that munged answers
    return StepSecret::by_munge(*munge, options.step, options.listens);
  } catch (const RuntimeError& error) {
    why_not = error.what();
    return std::nullopt;
  }
}

StepSecret required(const std::optional<Key>& key, KeySource source, const char* why_not) {
  if (key) return {source, *key};
  throw UsageError(fmt::format("no key from the {} is available: {}", name_of(source), why_not));
}

}  // namespace

const char* name_of(KeySource source) noexcept {
  switch (source) {
    case KeySource::plugin:
      return "plugin";
    case KeySource::launcher:
      return "launcher";
    case KeySource::munge:
      return "munge";
    case KeySource::file:
      return "file";
    case KeySource::none:
      break;
  }
  return "none";
}

StepSecret StepSecret::by_munge(Munge munge, const std::string& step, bool listens) {
  StepSecret secret;
  secret.source_ = KeySource::munge;
  secret.step_ = step;
  secret.munge_ = std::move(munge);
  if (listens) {
    secret.key_ = random_key();
    secret.credential_ =
        secret.munge_.encode(fmt::format("{}{} {}", kPayloadPrefix, step, hex_of(*secret.key_)));
  }
  return secret;
}

const Key& StepSecret::key() const {
  if (!key_) throw RuntimeError("this process does not have the step's key");
  return *key_;
}

Key StepSecret::key_from(const std::string& credential) const {
  if (source_ != KeySource::munge) return key();
  const std::string payload = munge_.decode(credential);
  const std::string prefix = fmt::format("{}{} ", kPayloadPrefix, step_);
  const auto told = payload.starts_with(prefix)
                        ? key_from_hex(std::string_view(payload).substr(prefix.size()))
                        : std::nullopt;
  if (!told) throw RuntimeError("the MUNGE credential belongs to another step");
  return *told;
}

StepSecret find_secret(const SecretOptions& options, const VariableLookup& variable,
                       const MungeLoader& load) {
  const std::string& wanted = options.wanted;
  if (wanted == "none") return {};
  if (wanted.starts_with(kFilePrefix)) {
    return {KeySource::file, key_of_file(wanted.substr(kFilePrefix.size()), options.step)};
  }
  if (wanted == "plugin") {
    return required(plugin_key(variable, options.step), KeySource::plugin,
                    "start the step with srun --ddp");
  }
  if (wanted == "launcher") {
    return required(launcher_key(variable, options.step), KeySource::launcher,
                    "only mpirun of Open MPI 4 provides one");
  }
  if (wanted != "auto" && wanted != "munge") {
    throw UsageError(fmt::format(
        "unknown key source '{}'; use auto, plugin, launcher, munge, file:PATH or none", wanted));
  }
  if (wanted == "auto") {
    if (const auto key = plugin_key(variable, options.step)) return {KeySource::plugin, *key};
    if (const auto key = launcher_key(variable, options.step)) return {KeySource::launcher, *key};
  }
  std::string why_not;
  if (auto secret = munge_secret(options, variable, load, why_not)) return *std::move(secret);
  if (wanted == "auto") return {};
  throw UsageError("no key from MUNGE is available: " + why_not);
}

}  // namespace ddp::comm

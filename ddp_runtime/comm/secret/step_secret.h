// SPDX-License-Identifier: Apache-2.0
// The secret with which the processes of one step authenticate each other on the network. Other
// users do not have it. See docs/security.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/secret/key.h"
#include "ddp_runtime/comm/secret/munge.h"

namespace ddp::comm {

enum class KeySource : std::uint8_t {
  none,
  plugin,    // drawn by the plugin in srun, passed in SLURM_DDP_STEP_KEY
  launcher,  // mpirun's random number for its job
  munge,     // drawn by the listener, passed in a credential that only the same user can decode
  file,      // from a private file that the user named
};
const char* name_of(KeySource source) noexcept;

class StepSecret {
 public:
  StepSecret() = default;  // no secret
  // Both ends have the key.
  StepSecret(KeySource source, const Key& key) : source_(source), key_(key) {}
  // The listener draws a key. Its credential conveys the key to callers of the same user and step.
  static StepSecret by_munge(Munge munge, const std::string& step, bool listens);

  KeySource source() const noexcept { return source_; }
  explicit operator bool() const noexcept { return source_ != KeySource::none; }

  // The listener's key.
  const Key& key() const;
  // The credential that the listener sends to each caller; empty unless MUNGE conveys the key.
  const std::string& credential() const noexcept { return credential_; }
  // The caller's key, from the listener's credential. Throws RuntimeError if the credential is not
  // from this user and this step.
  Key key_from(const std::string& credential) const;

 private:
  KeySource source_ = KeySource::none;
  std::optional<Key> key_;
  std::string credential_;
  std::string step_;
  Munge munge_;
};

struct SecretOptions {
  std::string wanted = "auto";  // or plugin, launcher, munge, none, file:PATH
  std::string step;             // identity of the step, the same in all its processes
  bool listens = false;
};

// Environment variables: the key that the plugin passes to tasks, "STEP:DIGITS", and the socket of
// munged.
inline constexpr const char* kStepKeyVariable = "SLURM_DDP_STEP_KEY";
inline constexpr const char* kMungeSocketVariable = "SLURM_DDP_MUNGE_SOCKET";

using VariableLookup = std::function<std::optional<std::string>(const std::string& name)>;
using MungeLoader = std::function<std::optional<Munge>(const std::string& socket)>;

// "auto" takes the plugin's key, else the launcher's, else MUNGE, else none. Throws UsageError if
// the requested source is not available, or if the file is not private.
StepSecret find_secret(const SecretOptions& options, const VariableLookup& variable,
                       const MungeLoader& load = load_munge);

}  // namespace ddp::comm

// SPDX-License-Identifier: Apache-2.0
#include "base/secret/proof.h"

#include <initializer_list>

#include "base/secret/random_token.h"

namespace ddp {
namespace {

// Prefixes each field with its length, so that different lists of fields give different strings.
std::string joined(std::initializer_list<std::string_view> fields) {
  std::string text;
  for (const std::string_view field : fields) {
    text += std::to_string(field.size());
    text += ':';
    text += field;
  }
  return text;
}

Key derived(const Key& key, const Meeting& meeting, std::string_view use, Side who) {
  return hmac_sha256(key, joined({"slurm-ddp/1", use, who == Side::caller ? "caller" : "listener",
                                  meeting.purpose, meeting.step, std::to_string(meeting.rank),
                                  meeting.callers_nonce, meeting.listeners_nonce}));
}

}  // namespace

std::string random_nonce() {
  return random_token();
}

std::string proof_of(const Key& key, const Meeting& meeting, Side who) {
  return hex_of(derived(key, meeting, "proof", who));
}

bool is_proof(std::string_view proof, const Key& key, const Meeting& meeting, Side who) {
  return equal_in_constant_time(proof, proof_of(key, meeting, who));
}

Key session_key(const Key& key, const Meeting& meeting, Side sender) {
  return derived(key, meeting, "session", sender);
}

}  // namespace ddp

// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/step/handshake.h"

namespace ddp::check {
namespace {

constexpr const char* kPurpose = "check";

// Verifies the leader's proof. Returns the meeting from which the proof and the session keys are
// derived.
Meeting meet(const Presentation& presentation, const nlohmann::json& challenge, const Key& key) {
  Meeting meeting = meeting_of(presentation, challenge.value("nonce", ""));
  if (!is_proof(challenge.value("proof", ""), key, meeting, Side::listener)) {
    throw NetError("the answering process does not have the key of this step");
  }
  return meeting;
}

Key key_told_by(const nlohmann::json& challenge, const comm::StepSecret& secret) {
  try {
    return secret.key_from(challenge.value("credential", ""));
  } catch (const RuntimeError& error) {
    throw NetError(error.what());
  }
}

}  // namespace

nlohmann::json to_message(const Presentation& presentation) {
  return {{"program", presentation.program}, {"identity", presentation.identity},
          {"rank", presentation.rank},       {"node", presentation.node},
          {"key", presentation.key},         {"nonce", presentation.nonce}};
}

Presentation presentation_from(const nlohmann::json& message) {
  return {message.at("program"), message.at("identity"), message.at("rank"),
          message.at("node"),    message.at("key"),      message.at("nonce")};
}

Meeting meeting_of(const Presentation& presentation, const std::string& leaders_nonce) {
  return {kPurpose, presentation.identity, presentation.rank, presentation.nonce, leaders_nonce};
}

nlohmann::json challenge_of(const comm::StepSecret& secret, const Meeting& meeting) {
  nlohmann::json challenge{{"nonce", meeting.listeners_nonce},
                           {"proof", proof_of(secret.key(), meeting, Side::listener)}};
  if (!secret.credential().empty()) challenge["credential"] = secret.credential();
  return challenge;
}

void require_no_refusal(const nlohmann::json& message) {
  if (message.contains("refused")) {
    throw NetError("the leader refused: " + message.value("refused", "no reason given"));
  }
}

Key introduce(ControlChannel& channel, const Hello& hello, const comm::StepSecret& secret,
              Deadline deadline) {
  const Presentation presentation{
      hello.program, hello.identity, hello.rank, hello.node, comm::name_of(secret.source()),
      random_nonce()};
  channel.send(to_message(presentation), deadline);
  if (!secret) return {};
  const auto challenge = channel.receive(deadline);
  if (!challenge) throw NetError("the process listening there is not ddp-check");
  require_no_refusal(*challenge);
  const Key key = key_told_by(*challenge, secret);
  const Meeting meeting = meet(presentation, *challenge, key);
  channel.send({{"proof", proof_of(key, meeting, Side::caller)}}, deadline);
  channel.seal(session_key(key, meeting, Side::caller), session_key(key, meeting, Side::listener));
  return key;
}

}  // namespace ddp::check

// What a task and the leader say before either believes the other: who the task is, and proofs of
// the step's secret by both (comm/secret/proof.h). Small messages only, whoever sends them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/check/net/step/control_channel.h"
#include "ddp_runtime/comm/secret/proof.h"
#include "ddp_runtime/comm/secret/step_secret.h"

namespace ddp::check {

// No message before the proofs is larger.
inline constexpr std::size_t kMaxFirstBytes = 4096;

// The first message of a task.
struct Presentation {
  std::string program;
  std::string identity;  // of the step
  int rank = 0;
  std::string node;
  std::string key;    // where its secret is from
  std::string nonce;  // of the task
};
nlohmann::json to_message(const Presentation& presentation);
// Throws nlohmann::json::exception for a message that is none.
Presentation presentation_from(const nlohmann::json& message);

comm::Meeting meeting_of(const Presentation& presentation, const std::string& leaders_nonce);

// The leader's answer to a presentation, with its proof.
nlohmann::json challenge_of(const comm::StepSecret& secret, const comm::Meeting& meeting);

// The task's side: presents it, has the leader prove itself, proves itself, and seals the channel.
// Without a secret it only presents itself. Throws NetError with the leader's reason to refuse, or
// if whoever answers does not know the secret.
void introduce(ControlChannel& channel, const Hello& hello, const comm::StepSecret& secret,
               Deadline deadline);

// Throws NetError if the message is a refusal, with the leader's words.
void require_no_refusal(const nlohmann::json& message);

}  // namespace ddp::check

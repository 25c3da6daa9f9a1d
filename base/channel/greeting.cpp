// SPDX-License-Identifier: Apache-2.0
#include "base/channel/greeting.h"

#include <utility>

#include "base/errors.h"

namespace ddp {
namespace {

// The text before and after the first space; nullopt if there is no space.
struct TwoWords {
  std::string first;
  std::string rest;
};
std::optional<TwoWords> two_words(const std::string& text) {
  const auto space = text.find(' ');
  if (space == std::string::npos) return std::nullopt;
  return TwoWords{text.substr(0, space), text.substr(space + 1)};
}

// The proofs cover everything in the first message.
Meeting meeting_of_channel(int rank, std::string callers_nonce, const std::string& who) {
  return {"error channel of " + who, {}, rank, std::move(callers_nonce), {}};
}

SessionKeys session_keys(const Key& key, const Meeting& meeting) {
  return {session_key(key, meeting, Side::caller), session_key(key, meeting, Side::listener)};
}

}  // namespace

std::optional<Message> HubGreeting::challenge(const Message& hello, const Key& key) {
  const auto words = two_words(hello.text);
  if (hello.kind != MessageKind::hello || !words || words->first.size() != kNonceCharacters) {
    return std::nullopt;
  }
  who_ = words->rest;
  meeting_ = meeting_of_channel(hello.rank, words->first, who_);
  meeting_.listeners_nonce = random_nonce();
  return Message{MessageKind::welcome, 0,
                 meeting_.listeners_nonce + " " + proof_of(key, meeting_, Side::listener)};
}

bool HubGreeting::accepts(const Message& proof, const Key& key) const {
  return proof.kind == MessageKind::hello && proof.rank == meeting_.rank &&
         is_proof(proof.text, key, meeting_, Side::caller);
}

SessionKeys HubGreeting::session(const Key& key) const {
  return session_keys(key, meeting_);
}

RankGreeting::RankGreeting(const Key& key, int rank, std::string who)
    : key_(key), who_(std::move(who)), meeting_(meeting_of_channel(rank, random_nonce(), who_)) {}

void RankGreeting::begin(Connection& connection) const {
  connection.accept_at_most(kMaxGreeting);
  connection.send({MessageKind::hello, meeting_.rank, meeting_.callers_nonce + " " + who_});
}

RankGreeting::State RankGreeting::advance(Connection& connection) {
  try {
    while (state_ == State::asked || state_ == State::answered) {
      const auto message = connection.next();
      if (!message) break;
      if (state_ == State::answered) {
        // The message is sealed, so only the hub can have sent it.
        state_ = message->kind == MessageKind::welcome ? State::welcome : State::stranger;
      } else if (meet(*message)) {
        connection.send(
            {MessageKind::hello, meeting_.rank, proof_of(key_, meeting_, Side::caller)});
        const SessionKeys keys = session_keys(key_, meeting_);
        connection.seal(keys.of_rank, keys.of_hub);
        state_ = State::answered;
      } else {
        state_ = State::stranger;
      }
    }
  } catch (const RuntimeError&) {
    state_ = State::stranger;  // not our protocol
  }
  return state_;
}

// Whether the hub has authenticated.
bool RankGreeting::meet(const Message& message) {
  const auto words = two_words(message.text);
  if (message.kind != MessageKind::welcome || message.rank != 0 || !words) return false;
  meeting_.listeners_nonce = words->first;
  return is_proof(words->rest, key_, meeting_, Side::listener);
}

Greeted greet(Connection& connection, RankGreeting greeting, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  greeting.begin(connection);
  bool more = true;
  while (true) {
    switch (greeting.advance(connection)) {
      case RankGreeting::State::welcome:
        return Greeted::welcome;
      case RankGreeting::State::stranger:
        return Greeted::stranger;
      default:
        break;
    }
    if (!more) return Greeted::silent;
    more = connection.fill_before(deadline);
  }
}

}  // namespace ddp

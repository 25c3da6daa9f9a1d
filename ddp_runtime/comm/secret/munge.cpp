// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/secret/munge.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "base/errors.h"

namespace ddp::comm {
namespace {

// The constants of munge.h (libmunge 2) that this file needs.
constexpr int kOptSocket = 8;
constexpr int kOptUidRestriction = 9;
constexpr int kSuccess = 0;
// Error codes that are ignored: all tasks of a node decode the same credential, and a later proof
// shows that its payload is fresh.
constexpr int kExpired = 15;
constexpr int kReplayed = 17;

struct MungeLibrary {
  void* (*create)() = nullptr;
  void (*destroy)(void*) = nullptr;
  int (*set)(void*, int, ...) = nullptr;
  int (*encode)(char**, void*, const void*, int) = nullptr;
  int (*decode)(const char*, void*, void**, int*, uid_t*, gid_t*) = nullptr;
  const char* (*strerror)(int) = nullptr;
};

template <class Function>
bool find_symbol(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

std::optional<MungeLibrary> open_library() {
  void* library = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);  // never closed
  if (library == nullptr) return std::nullopt;
  MungeLibrary munge;
  const bool whole = find_symbol(library, "munge_ctx_create", munge.create) &&
                     find_symbol(library, "munge_ctx_destroy", munge.destroy) &&
                     find_symbol(library, "munge_ctx_set", munge.set) &&
                     find_symbol(library, "munge_encode", munge.encode) &&
                     find_symbol(library, "munge_decode", munge.decode) &&
                     find_symbol(library, "munge_strerror", munge.strerror);
  return whole ? std::optional(munge) : std::nullopt;
}

struct Freed {
  // NOLINTNEXTLINE(cppcoreguidelines-no-malloc,cppcoreguidelines-owning-memory): from libmunge
  void operator()(void* memory) const noexcept { std::free(memory); }
};

using Context = std::unique_ptr<void, void (*)(void*)>;

Context context_of(const MungeLibrary& munge, const std::string& socket) {
  Context context(munge.create(), munge.destroy);
  if (!context) throw RuntimeError("MUNGE cannot create a context");
  if (!socket.empty() && munge.set(context.get(), kOptSocket, socket.c_str()) != kSuccess) {
    throw RuntimeError("MUNGE does not accept " + socket + " as its socket");
  }
  return context;
}

std::string encode(const MungeLibrary& munge, const std::string& socket,
                   const std::string& payload) {
  const Context context = context_of(munge, socket);
  if (munge.set(context.get(), kOptUidRestriction, geteuid()) != kSuccess) {
    throw RuntimeError("MUNGE cannot restrict a credential to one user");
  }
  char* made = nullptr;
  const int error =
      munge.encode(&made, context.get(), payload.data(), static_cast<int>(payload.size()));
  const std::unique_ptr<char, Freed> credential(made);
  if (error != kSuccess || !credential) {
    throw RuntimeError(std::string("MUNGE cannot create a credential: ") + munge.strerror(error));
  }
  return credential.get();
}

std::string decode(const MungeLibrary& munge, const std::string& socket,
                   const std::string& credential) {
  const Context context = context_of(munge, socket);
  void* found = nullptr;
  int length = 0;
  uid_t user = 0;
  gid_t group = 0;
  const int error = munge.decode(credential.c_str(), context.get(), &found, &length, &user, &group);
  const std::unique_ptr<void, Freed> payload(found);
  if (error != kSuccess && (error < kExpired || error > kReplayed)) {
    throw RuntimeError(std::string("MUNGE does not accept the credential: ") +
                       munge.strerror(error));
  }
  if (user != geteuid()) throw RuntimeError("the MUNGE credential belongs to another user");
  return payload ? std::string(static_cast<const char*>(payload.get()),
                               static_cast<std::size_t>(length))
                 : std::string();
}

}  // namespace

std::optional<Munge> load_munge(const std::string& socket) {
  const auto library = open_library();
  if (!library) return std::nullopt;
  const MungeLibrary munge = *library;
  return Munge{
      [munge, socket](const std::string& payload) { return encode(munge, socket, payload); },
      [munge, socket](const std::string& credential) { return decode(munge, socket, credential); }};
}

}  // namespace ddp::comm

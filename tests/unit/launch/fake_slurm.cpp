// SPDX-License-Identifier: Apache-2.0
#include "fake_slurm.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#ifdef SLURM_DDP_SANITIZED
#define DDP_OWN_MALLOC 0
#else
#define DDP_OWN_MALLOC 1
#endif

// SLURM hides the content of spank_t; here it is the table.
struct spank_handle {
  const ddp::launch::FakeSlurm* slurm;
};

namespace {

using ddp::launch::FakeSlurm;

// State of the child process in which the plugin runs.
int transcript = -1;
const FakeSlurm* current = nullptr;
spank_opt_cb_f callback = nullptr;
bool in_task = false;
unsigned allocations_left = 0;  // 0 if all succeed

void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

void say_list(const char* before, const char* format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

void say_list(const char* before, const char* format, va_list arguments) {
  static std::array<char, 262'144> line;  // static, because this also runs when allocations fail
  int length = std::snprintf(line.data(), line.size(), "%s", before);
  length += std::vsnprintf(line.data() + length, line.size() - static_cast<std::size_t>(length) - 1,
                           format, arguments);
  const auto end = std::min(static_cast<std::size_t>(length), line.size() - 2);
  line.at(end) = '\n';
  if (write(transcript, line.data(), end + 1) < 0) _exit(99);
}

void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say_list("", format, arguments);
  va_end(arguments);
}

}  // namespace

#if DDP_OWN_MALLOC
extern "C" {
void* __libc_malloc(std::size_t size);

// The plugin also finds this function before libc's version.
void* malloc(std::size_t size) {
  if (allocations_left != 0 && --allocations_left == 0) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(size);
}
}
#endif

extern "C" {

void slurm_error(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say_list("error: ", format, arguments);
  va_end(arguments);
}

void slurm_spank_log(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say_list("log: ", format, arguments);
  va_end(arguments);
}

spank_context_t spank_context(void) {
  return current->context;
}

int spank_remote(spank_t /*spank*/) {
  return current->context == S_CTX_REMOTE ? 1 : 0;
}

const char* spank_strerror(spank_err_t /*error*/) {
  return "as requested by the test";
}

spank_err_t spank_option_register(spank_t /*spank*/, struct spank_option* option) {
  if (current->refuses_option) return static_cast<spank_err_t>(ESPANK_BAD_ARG);
  say("option %s", option->name);
  callback = option->cb;
  return static_cast<spank_err_t>(ESPANK_SUCCESS);
}

spank_err_t spank_getenv(spank_t /*spank*/, const char* name, char* buffer, int length) {
  if (current->getenv_result != ESPANK_SUCCESS)
    return static_cast<spank_err_t>(current->getenv_result);
  const auto& own = in_task ? current->task_variables : current->variables;
  auto found = own.find(name);
  if (found == own.end()) found = current->variables.find(name);
  if (found == current->variables.end()) return static_cast<spank_err_t>(ESPANK_ENV_NOEXIST);
  if (found->second.size() >= static_cast<std::size_t>(length))
    return static_cast<spank_err_t>(ESPANK_NOSPACE);
  std::memcpy(buffer, found->second.c_str(), found->second.size() + 1);
  return static_cast<spank_err_t>(ESPANK_SUCCESS);
}

spank_err_t spank_setenv(spank_t /*spank*/, const char* name, const char* value, int overwrite) {
  if (current->setenv_result != ESPANK_SUCCESS)
    return static_cast<spank_err_t>(current->setenv_result);
  say("set %s=%s%s", name, value, overwrite == 1 ? "" : " without overwriting");
  return static_cast<spank_err_t>(ESPANK_SUCCESS);
}

spank_err_t spank_unsetenv(spank_t /*spank*/, const char* name) {
  say("unset %s", name);
  return static_cast<spank_err_t>(ESPANK_SUCCESS);
}

// SLURM's own declaration has an enumeration before the dots.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wvarargs"
spank_err_t spank_get_item(spank_t /*spank*/, spank_item_t item, ...) {
  if (current->item_result != ESPANK_SUCCESS) return static_cast<spank_err_t>(current->item_result);
  static std::vector<char*> words;
  va_list arguments;
  va_start(arguments, item);
  int result = ESPANK_SUCCESS;
  if (item == S_JOB_STEPID) {
    *va_arg(arguments, std::uint32_t*) = current->step_id;
  } else if (item == S_JOB_NNODES) {
    *va_arg(arguments, std::uint32_t*) = current->node_count;
  } else if (item == S_JOB_ARGV) {
    words.clear();
    for (const auto& word : current->command) words.push_back(const_cast<char*>(word.c_str()));
    *va_arg(arguments, int*) = static_cast<int>(words.size());
    *va_arg(arguments, char***) = words.data();
  } else if (item == S_SLURM_VERSION_MAJOR) {
    *va_arg(arguments, const char**) = current->release_major.c_str();
  } else if (item == S_SLURM_VERSION_MINOR) {
    *va_arg(arguments, const char**) = current->release_minor.c_str();
  } else {
    result = ESPANK_BAD_ARG;
  }
  va_end(arguments);
  return static_cast<spank_err_t>(result);
}
#pragma GCC diagnostic pop

}  // extern "C"

namespace ddp::launch {
namespace {

using EntryPoint = int (*)(spank_t, int, char**);

// Runs the callbacks in SLURM's order, in the child process. Never returns.
[[noreturn]] void act(const FakeSlurm& slurm, const char* option, unsigned failing_allocation) {
  current = &slurm;
  const auto load_other = [&slurm](bool now) {
    if (slurm.other_plugin.empty() || !now) return;
    if (dlopen(slurm.other_plugin.c_str(), RTLD_LAZY | RTLD_LOCAL) == nullptr) _exit(97);
  };
  load_other(!slurm.other_plugin_is_later);
  void* plugin = dlopen(SLURM_DDP_PLUGIN_FILE, RTLD_LAZY | RTLD_LOCAL);
  if (plugin == nullptr) {
    say("cannot load: %s", dlerror());
    _exit(98);
  }
  load_other(slurm.other_plugin_is_later);
  spank_handle handle{&slurm};
  std::vector<char*> arguments;
  for (const auto& argument : slurm.plugin_arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  const auto call_once = [&](const char* name) {
    const auto entry = reinterpret_cast<EntryPoint>(dlsym(plugin, name));
    const int result = entry(&handle, static_cast<int>(arguments.size()), arguments.data());
    say("%s: %d", name + std::strlen("slurm_spank_"), result);
  };
  const auto call = [&](const char* name) {
    for (int line = 0; line < slurm.lines; ++line) call_once(name);
  };
  // glibc aborts if it lacks memory for the first exception of a thread. So a wrong SLURM_DDP makes
  // the plugin throw and catch an exception now.
  if (failing_allocation != 0) {
    FakeSlurm allocator = slurm;
    allocator.context = S_CTX_ALLOCATOR;
    current = &allocator;
    setenv(variable::kUserSpec, "nonsense", 1);
    call("slurm_spank_init_post_opt");
    unsetenv(variable::kUserSpec);
    current = &slurm;
  }
  allocations_left = failing_allocation;
  call("slurm_spank_init");
  if (option != nullptr && callback != nullptr)
    say("callback: %d", callback(0, option, spank_remote(&handle)));
  call("slurm_spank_init_post_opt");
  if (slurm.context == S_CTX_LOCAL) call("slurm_spank_local_user_init");
  if (slurm.context == S_CTX_REMOTE) {
    call("slurm_spank_user_init");
    in_task = true;
    call("slurm_spank_task_init");
  }
  for (const auto& name : slurm.shown) {
    if (const char* value = getenv(name.c_str())) say("has %s=%s", name.c_str(), value);
  }
  if (const char* settings = getenv(variable::kSettings)) say("settings %s", settings);
  if (const char* tasks = getenv(variable::kTasksPerNode)) say("tasks per node %s", tasks);
  say("allocations left: %u", allocations_left);
  _exit(0);
}

}  // namespace

FakeSlurm::FakeSlurm() {
  std::array<char, 8> minor{};
  std::snprintf(minor.data(), minor.size(), "%02d",
                static_cast<int>(SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER)));
  release_major = std::to_string(SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER));
  release_minor = minor.data();
}

Transcript run_plugin(const FakeSlurm& slurm, const char* option, unsigned failing_allocation) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return {"no pipe", false, 0};
  const pid_t child = fork();
  if (child == 0) {
    transcript = ends[1];
    // The task's own output is not part of the test's output.
    dup2(ends[1], STDERR_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    act(slurm, option, failing_allocation);
  }
  close(ends[1]);
  Transcript result;
  std::array<char, 4096> block{};
  for (ssize_t count = 0; (count = read(ends[0], block.data(), block.size())) > 0;)
    result.text.append(block.data(), static_cast<std::size_t>(count));
  close(ends[0]);
  waitpid(child, &result.status, 0);
  result.ended_well = WIFEXITED(result.status) && WEXITSTATUS(result.status) <= 1;
  return result;
}

}  // namespace ddp::launch

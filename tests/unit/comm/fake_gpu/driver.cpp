// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA driver that load and launch the project's kernels. Instead of machine
// code, the fake runs the kernels' bodies on the CPU. Ranges in tables of pieces are read at the
// launch, so a table must have arrived by then.
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "tests/unit/comm/fake_gpu/machine.h"
#include "tests/unit/kernels/cpu_grid.h"

namespace ddp::fake {
namespace {

using kernels::AdamWArguments;
using kernels::Bf16;
using kernels::CheckArguments;
using kernels::F16;
using kernels::F32;
using kernels::PackArguments;

constexpr int kNotFound = 500;
constexpr int kInvalidValue = 1;

struct Work {
  std::vector<Range> reads;
  std::vector<Range> writes;
  std::function<void()> run;
};
// Of one launch: the pointer to its arguments and the number of its blocks.
using Kernel = Work (*)(const void*, std::uint64_t);

template <class From, class To>
Work pack_work(const void* at, std::uint64_t blocks) {
  const auto a = *static_cast<const PackArguments*>(at);
  Work work{{{a.pieces, a.count * sizeof(*a.pieces)}}, {}, {}};
  auto* const to = static_cast<typename To::Bits*>(a.to);
  for (std::uint64_t i = 0; i < a.count; ++i) {
    const auto& piece = a.pieces[i];
    if (piece.count == 0) continue;
    work.reads.push_back({piece.from, piece.count * sizeof(typename From::Bits)});
    work.writes.push_back({to + piece.to, piece.count * sizeof(*to)});
  }
  work.run = [=] { kernels::cpu::run_pack<From, To>(a, blocks); };
  return work;
}

template <class Element>
Work check_work(const void* at, std::uint64_t blocks) {
  const auto a = *static_cast<const CheckArguments*>(at);
  Work work{{{a.data, a.count * sizeof(typename Element::Bits)}},
            {{a.partials, blocks * sizeof(double)}, {a.ticket, sizeof(*a.ticket)}},
            [=] { kernels::cpu::run_check<Element>(a, blocks); }};
  if (a.sum_of_squares != nullptr) work.writes.push_back({a.sum_of_squares, sizeof(double)});
  if (a.found_inf != nullptr) work.writes.push_back({a.found_inf, sizeof(float)});
  return work;
}

template <class Gradient>
Work adamw_work(const void* at, std::uint64_t blocks) {
  const auto a = *static_cast<const AdamWArguments*>(at);
  Work work{{{a.pieces, a.count * sizeof(*a.pieces)}}, {}, {}};
  for (const float* value : {a.step, a.lr_value, a.loss_scale, a.clip_factor, a.skip}) {
    if (value != nullptr) work.reads.push_back({value, sizeof(float)});
  }
  for (std::uint64_t i = 0; i < a.count; ++i) {
    const auto& piece = a.pieces[i];
    if (piece.count == 0) continue;
    work.reads.push_back({piece.gradient, piece.count * sizeof(typename Gradient::Bits)});
    for (float* array : {piece.parameter, piece.average, piece.square_average}) {
      work.writes.push_back({array, piece.count * sizeof(float)});
    }
    if (piece.weight != nullptr) {
      work.writes.push_back({piece.weight, piece.count * sizeof(*piece.weight)});
    }
  }
  work.run = [=] { kernels::cpu::run_adamw<Gradient>(a, blocks); };
  return work;
}

const std::map<std::string, Kernel>& all_kernels() {
  static const std::map<std::string, Kernel> found = {
      {"slurm_ddp_pack_f32_f32", pack_work<F32, F32>},
      {"slurm_ddp_pack_f32_bf16", pack_work<F32, Bf16>},
      {"slurm_ddp_pack_f32_f16", pack_work<F32, F16>},
      {"slurm_ddp_pack_bf16_f32", pack_work<Bf16, F32>},
      {"slurm_ddp_pack_bf16_bf16", pack_work<Bf16, Bf16>},
      {"slurm_ddp_pack_f16_f32", pack_work<F16, F32>},
      {"slurm_ddp_pack_f16_f16", pack_work<F16, F16>},
      {"slurm_ddp_check_f32", check_work<F32>},
      {"slurm_ddp_check_bf16", check_work<Bf16>},
      {"slurm_ddp_check_f16", check_work<F16>},
      {"slurm_ddp_adamw_f32", adamw_work<F32>},
      {"slurm_ddp_adamw_bf16", adamw_work<Bf16>},
  };
  return found;
}

}  // namespace
}  // namespace ddp::fake

using ddp::fake::Machine;

extern "C" {

int cuInit(unsigned) {
  return 0;
}
int cuGetErrorString(int code, const char** text) {
  *text = code == 209 ? "no kernel image is available for execution on the device" : "fake trouble";
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = ddp::fake::device_of_this_thread();
  return 0;
}
// The number of multiprocessors.
int cuDeviceGetAttribute(int* value, int attribute, int) {
  if (attribute != 16) return ddp::fake::kInvalidValue;
  *value = 3;
  return 0;
}
// A library is a number; each has all kernels.
int cuLibraryLoadData(void** library, const void* image, int*, void**, unsigned, int*, void**,
                      unsigned) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  if (image == nullptr) return ddp::fake::kInvalidValue;
  if (machine.knobs.library_error != 0) return machine.knobs.library_error;
  ++machine.libraries;
  *library = &machine;
  return 0;
}
int cuLibraryUnload(void*) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  if (machine.libraries-- <= 0) machine.report("a library is unloaded that is not loaded");
  return 0;
}
int cuLibraryGetKernel(void** kernel, void*, const char* name) {
  const auto& all = ddp::fake::all_kernels();
  const auto found = all.find(name);
  if (found == all.end()) return ddp::fake::kNotFound;
  *kernel = reinterpret_cast<void*>(found->second);
  return 0;
}
int cuKernelGetFunction(void** function, void* kernel) {
  *function = kernel;
  return Machine::get().knobs.function_error;
}
int cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                   unsigned, unsigned, void* stream, void** parameters, void**) {
  if (blocks == 0 || threads != ddp::kernels::kThreads) return ddp::fake::kInvalidValue;
  const auto kernel = reinterpret_cast<ddp::fake::Kernel>(function);
  const auto work = kernel(parameters[0], blocks);
  ddp::fake::launch(stream, "a kernel", work.reads, work.writes, work.run);
  return 0;
}

}  // extern "C"

// What an op of engine/kernels runs on, and the words that all ops share.
//
// One header an op: its maths, shapes, numerics, repeatability and aliasing, and an Args struct
// without a backend's types. A backend is a set of overloads on its own Context; engine/nn is
// written once over them. Args are templates on the element type: the CPU has float, CUDA bf16.
//
// Common to all ops
//  - Arrays are row-major. Unless a header allows it, no two arrays of an op overlap.
//  - rows may be 0: nothing is read, and what does not depend on rows is still written (a
//    weight gradient in kOverwrite mode becomes zero).
//  - Results do not depend on the number of threads: work is cut by shape alone and every sum
//    has one order.
//  - No op allocates. A broken contract (a negative size, a null array, too little scratch) is
//    InvalidArgument, and then nothing has been written.
//
// On CUDA
//  - Every pointer is a device pointer: sums (loss_sum, labelled_tokens), ids, positions, labels
//    and document_starts too. What a kernel cannot check without a wait (ids in range, ascending
//    document_starts) the executor checks before it uploads a step's input.
//  - An op queues work on the context's stream and returns; its arrays stay valid and unchanged
//    by others until that work is done. A failure of the work shows in a later call.
//  - Elements are bf16, arithmetic is f32 and rounds once, at the store; where a header says f64
//    for a sum, CUDA sums in f32, in one fixed order, unless it says otherwise.
#pragma once

#include <cstdint>

#include "engine/base/bf16.h"

namespace penstock {

class ThreadPool;

namespace cpu {
struct Context {
  ThreadPool* pool;  // not owned; one caller at a time
};
}  // namespace cpu

namespace cuda {
struct Context;  // engine/cuda/context.h
}  // namespace cuda

// Whether an op stores its result or adds it to what is there. Activations are stored:
// reading the old value would cost bandwidth and a memset. Parameter gradients are stored by
// the first micro-batch of a step and added to by the rest, so no op ever clears them.
enum class WriteMode : uint8_t { kOverwrite, kAdd };

}  // namespace penstock

// Bodies of Decoder, included once by each backend's instantiation (decoder_cpu.cc,
// decoder_cuda.cc).
#pragma once

#include "engine/nn/decoder_backward_impl.h"
#include "engine/nn/decoder_forward_impl.h"
#include "engine/nn/decoder_head_impl.h"

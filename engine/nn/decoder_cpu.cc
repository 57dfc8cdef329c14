#include "engine/nn/decoder_impl.h"

namespace penstock {

template class Decoder<float, cpu::Context>;

}  // namespace penstock

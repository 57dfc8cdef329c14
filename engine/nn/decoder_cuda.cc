#include "engine/nn/decoder_impl.h"

namespace penstock {

template class Decoder<bf16, const cuda::Context>;

}  // namespace penstock

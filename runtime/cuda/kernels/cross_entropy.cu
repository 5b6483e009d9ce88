// The cross-entropy of class indices: in each pass one block reads one row of outputs, once, in whatever format they
// have, and computes in float32. The running maximum and sum of a row are those of Milakov and Gimelshein, "Online
// normalizer calculation for softmax" (2018). Compiled by compile_kernels.py, without any header.

namespace {

constexpr int kVectorBytes = 16;

struct Bf16 {
  using Bits = unsigned short;
  static __device__ float Read(Bits bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
  static __device__ Bits Write(float value) {  // to the nearest, ties to even
    const unsigned bits = __float_as_uint(value);
    if (value != value) return 0x7fc0;
    return static_cast<Bits>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

struct Fp16 {
  using Bits = unsigned short;
  static __device__ float Read(Bits bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
  static __device__ Bits Write(float value) {
    Bits bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
};

struct Fp32 {
  using Bits = float;
  static __device__ float Read(Bits bits) { return bits; }
  static __device__ Bits Write(float value) { return value; }
};

template <typename Format>
constexpr int kWidth = kVectorBytes / static_cast<int>(sizeof(typename Format::Bits));

template <typename Format>
union Vector {
  uint4 whole;
  typename Format::Bits parts[kWidth<Format>];
};

__device__ float MinusInfinity() { return __uint_as_float(0xff800000U); }

__device__ float NotANumber() { return __uint_as_float(0x7fc00000U); }

// The sum of exp(x - most) over some x of which `most` is the greatest.
struct Sum {
  float most = MinusInfinity();
  float scaled = 0;

  __device__ void RaiseTo(float other) {
    if (!(other > most)) return;
    scaled *= __expf(most - other);
    most = other;
  }
  __device__ void Add(float x) {
    if (x != MinusInfinity()) scaled += __expf(x - most);
  }
  __device__ void Add(Sum other) {
    RaiseTo(other.most);
    if (other.most != MinusInfinity()) scaled += other.scaled * __expf(other.most - most);
    if (other.scaled != other.scaled) scaled = other.scaled;  // not a number
  }
};

__device__ Sum OfTheWarp(Sum sum) {
  for (int distance = 16; distance > 0; distance /= 2) {
    Sum other;
    other.most = __shfl_xor_sync(0xffffffffU, sum.most, distance);
    other.scaled = __shfl_xor_sync(0xffffffffU, sum.scaled, distance);
    sum.Add(other);
  }
  return sum;
}

// In the first thread.
__device__ Sum OfTheBlock(Sum sum) {
  __shared__ float most[32];
  __shared__ float scaled[32];
  sum = OfTheWarp(sum);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) {
    most[warp] = sum.most;
    scaled[warp] = sum.scaled;
  }
  __syncthreads();
  if (warp != 0) return sum;
  Sum of_lane;
  if (lane < static_cast<int>(blockDim.x) / 32) {
    of_lane.most = most[lane];
    of_lane.scaled = scaled[lane];
  }
  return OfTheWarp(of_lane);
}

// `is_aligned`: rows begin at multiples of a vector.
template <typename Format>
__device__ void Forward(const typename Format::Bits* outputs, const long long* targets, float* log_of_sums,
                        float* losses, long long classes, bool is_aligned) {
  const typename Format::Bits* row = outputs + static_cast<long long>(blockIdx.x) * classes;
  Sum sum;
  if (is_aligned) {
    const uint4* vectors = reinterpret_cast<const uint4*>(row);
    for (long long i = threadIdx.x; i < classes / kWidth<Format>; i += blockDim.x) {
      Vector<Format> vector;
      vector.whole = vectors[i];
      float values[kWidth<Format>];
      for (int j = 0; j < kWidth<Format>; ++j) values[j] = Format::Read(vector.parts[j]);
      float most = values[0];
      for (int j = 1; j < kWidth<Format>; ++j) most = values[j] > most ? values[j] : most;
      sum.RaiseTo(most);
      for (int j = 0; j < kWidth<Format>; ++j) sum.Add(values[j]);
    }
  } else {
    for (long long i = threadIdx.x; i < classes; i += blockDim.x) {
      const float value = Format::Read(row[i]);
      sum.RaiseTo(value);
      sum.Add(value);
    }
  }
  sum = OfTheBlock(sum);
  if (threadIdx.x != 0) return;
  const float log_of_sum = sum.most + logf(sum.scaled);
  log_of_sums[blockIdx.x] = log_of_sum;
  const long long target = targets[blockIdx.x];
  const bool is_class = target >= 0 && target < classes;
  losses[blockIdx.x] = is_class ? log_of_sum - Format::Read(row[target]) : NotANumber();
}

// The probability p, and of the target p - 1, computed without cancellation.
__device__ float Slope(float output, float log_of_sum, bool is_target) {
  return is_target ? expm1f(output - log_of_sum) : __expf(output - log_of_sum);
}

template <typename Format>
__device__ void Backward(const typename Format::Bits* outputs, const long long* targets,
                         const float* log_of_sums, const float* scale, typename Format::Bits* gradients,
                         long long classes, bool is_aligned) {
  const long long begin = static_cast<long long>(blockIdx.x) * classes;
  const float log_of_sum = log_of_sums[blockIdx.x];
  const long long target = targets[blockIdx.x];
  const float factor = *scale;
  if (is_aligned) {
    const uint4* vectors = reinterpret_cast<const uint4*>(outputs + begin);
    uint4* written = reinterpret_cast<uint4*>(gradients + begin);
    for (long long i = threadIdx.x; i < classes / kWidth<Format>; i += blockDim.x) {
      Vector<Format> vector;
      vector.whole = vectors[i];
      for (int j = 0; j < kWidth<Format>; ++j) {
        const bool is_target = i * kWidth<Format> + j == target;
        const float output = Format::Read(vector.parts[j]);
        vector.parts[j] = Format::Write(factor * Slope(output, log_of_sum, is_target));
      }
      written[i] = vector.whole;
    }
  } else {
    for (long long i = threadIdx.x; i < classes; i += blockDim.x) {
      const float output = Format::Read(outputs[begin + i]);
      gradients[begin + i] = Format::Write(factor * Slope(output, log_of_sum, i == target));
    }
  }
}

}  // namespace

#define LOCKSTEP_CROSS_ENTROPY(Format, suffix)                                                                  \
  extern "C" __global__ void cross_entropy_forward_##suffix(                                                    \
      const Format::Bits* outputs, const long long* targets, float* log_of_sums, float* losses,                 \
      long long classes, bool is_aligned) {                                                                     \
    Forward<Format>(outputs, targets, log_of_sums, losses, classes, is_aligned);                                \
  }                                                                                                             \
  extern "C" __global__ void cross_entropy_backward_##suffix(                                                   \
      const Format::Bits* outputs, const long long* targets, const float* log_of_sums, const float* scale,      \
      Format::Bits* gradients, long long classes, bool is_aligned) {                                            \
    Backward<Format>(outputs, targets, log_of_sums, scale, gradients, classes, is_aligned);                     \
  }

LOCKSTEP_CROSS_ENTROPY(Bf16, bf16)
LOCKSTEP_CROSS_ENTROPY(Fp16, fp16)
LOCKSTEP_CROSS_ENTROPY(Fp32, fp32)

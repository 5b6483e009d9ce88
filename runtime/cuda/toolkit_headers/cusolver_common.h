#pragma once
// See cublas_v2.h.

enum cusolverStatus_t : int;

#pragma once
// See cublas_v2.h.

#include <cusolver_common.h>

typedef struct cusolverDnContext* cusolverDnHandle_t;

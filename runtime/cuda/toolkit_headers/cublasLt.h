#pragma once
// See cublas_v2.h.

typedef struct cublasLtContext* cublasLtHandle_t;

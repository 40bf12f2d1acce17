// Types of fixed width, for there are no host headers where kernels are compiled.
#pragma once

typedef float f32;
typedef double f64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// Of every block of ours, unless a user has chosen others: enough to hide memory behind, few enough for any device.
#ifndef THREADS
#define THREADS 256
#endif

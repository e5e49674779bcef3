// Handlers of -fsanitize=undefined: overflow, division, shifts, indices of arrays of known length, alignment. The data
// they get carries file and line; its layout is that of compiler-rt's ubsan, which GCC shares.
#pragma once

#include "hooks.h"

namespace sprigs {

struct SourceLocation {
    const char* file;
    u32 line, column;
};
struct TypeDescriptor {
    uint16_t kind, info;
    char name[1];
};
struct ArithmeticData {
    SourceLocation where;
    TypeDescriptor* type;
};
struct TypedData {
    SourceLocation where;
    TypeDescriptor *type, *other;
};
struct PointerData {
    SourceLocation where;
    TypeDescriptor* type;
    unsigned char log_alignment, kind;
};

// Values up to 64 bits travel in the handle itself; bit 0 of `info` says signed, the rest the logarithm of the width.
static void print_value(char* to, size_t room, const TypeDescriptor* type, uintptr_t handle) {
    u32 width = 1u << (type->info >> 1);
    if (type->kind != 0 || width > 64) {
        snprintf(to, room, "...");
    } else if (type->info & 1) {
        long long shifted = static_cast<long long>(static_cast<u64>(handle) << (64 - width));
        snprintf(to, room, "%lld", shifted >> (64 - width));
    } else {
        snprintf(to, room, "%llu", static_cast<u64>(handle));
    }
}

[[noreturn]] static void fail_arithmetic(Outcome outcome, const SourceLocation& where) {
    describe_site({where.file, where.line}, S.report->here);
    fail_unless_early(outcome);
}

[[noreturn]] static void fail_overflow(const ArithmeticData* data, uintptr_t left, const char* sign, uintptr_t right) {
    char a[32], b[32];
    print_value(a, sizeof a, data->type, left);
    print_value(b, sizeof b, data->type, right);
    snprintf(S.report->detail, sizeof S.report->detail, "%s %s %s does not fit in %s", a, sign, b, data->type->name);
    fail_arithmetic(INTEGER_OVERFLOW, data->where);
}

}  // namespace sprigs

extern "C" {

void __ubsan_handle_add_overflow(ArithmeticData* d, uintptr_t a, uintptr_t b) { fail_overflow(d, a, "+", b); }
void __ubsan_handle_sub_overflow(ArithmeticData* d, uintptr_t a, uintptr_t b) { fail_overflow(d, a, "-", b); }
void __ubsan_handle_mul_overflow(ArithmeticData* d, uintptr_t a, uintptr_t b) { fail_overflow(d, a, "*", b); }
void __ubsan_handle_negate_overflow(ArithmeticData* d, uintptr_t a) { fail_overflow(d, 0, "-", a); }

void __ubsan_handle_divrem_overflow(ArithmeticData* d, uintptr_t a, uintptr_t b) {
    char left[32], right[32];
    print_value(left, sizeof left, d->type, a);
    print_value(right, sizeof right, d->type, b);
    snprintf(S.report->detail, sizeof S.report->detail, "%s / %s", left, right);
    fail_arithmetic(DIVISION, d->where);
}

void __ubsan_handle_shift_out_of_bounds(TypedData* d, uintptr_t, uintptr_t b) {
    char by[32];
    print_value(by, sizeof by, d->other, b);
    snprintf(S.report->detail, sizeof S.report->detail, "a shift of %s by %s", d->type->name, by);
    fail_arithmetic(SHIFT, d->where);
}

void __ubsan_handle_out_of_bounds(TypedData* d, uintptr_t index) {
    char at[32];
    print_value(at, sizeof at, d->other, index);
    snprintf(S.report->detail, sizeof S.report->detail, "index %s of %s", at, d->type->name);
    fail_arithmetic(BAD_INDEX, d->where);
}

void __ubsan_handle_type_mismatch_v1(PointerData* d, uintptr_t pointer) {
    static const char* const actions[] = {"load of", "store to", "reference to", "member access of", "member call of"};
    u32 alignment = 1u << d->log_alignment;
    describe_place(pointer - reinterpret_cast<uintptr_t>(heap.base), 0);
    snprintf(S.report->detail, sizeof S.report->detail, "%s %s, which needs an address that is a multiple of %u",
             d->kind < 5 ? actions[d->kind] : "access to", d->type->name, alignment);
    fail_arithmetic(MISALIGNED, d->where);
}
}

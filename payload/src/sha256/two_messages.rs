//! Two SHA-256 over the same blocks with the SHA extensions of x86 (Intel, "New Instructions Supporting the Secure Hash
//! Algorithm on Intel Architecture Processors", 2013). The message schedule is computed once, and the rounds of both
//! hashes are interleaved.

use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_extract_epi32, _mm_set_epi32, _mm_set_epi64x, _mm_sha256msg1_epu32,
    _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32, _mm_shuffle_epi8, _mm_shuffle_epi32,
};

use super::{Block, State};

// Round constants (FIPS 180-4, section 4.2.2), four per entry.
#[rustfmt::skip]
const K: [[u32; 4]; 16] = [
    [0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5], [0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5],
    [0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3], [0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174],
    [0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc], [0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da],
    [0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7], [0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967],
    [0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13], [0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85],
    [0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3], [0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070],
    [0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5], [0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3],
    [0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208], [0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2],
];

// A state in the order that the instructions want: words A, B, E, F and words C, D, G, H.
type Words = (__m128i, __m128i);

/// Returns false, having done nothing, if the CPU lacks the instructions.
pub fn compress(a: &mut State, b: &mut State, blocks: &[Block]) -> bool {
    if !(is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1") && is_x86_feature_detected!("ssse3")) {
        return false;
    }
    #[allow(unsafe_code, reason = "calling a target_feature function is unsafe")]
    // SAFETY: the check above found every CPU feature that the function is compiled for.
    unsafe {
        compress_by_instruction(a, b, blocks);
    }
    true
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
fn compress_by_instruction(a: &mut State, b: &mut State, blocks: &[Block]) {
    let mut both = [pack(a), pack(b)];
    for block in blocks {
        let before = both;
        let mut w = load(block);
        for (n, k) in K.iter().enumerate() {
            rounds(&mut both, w[0], k);
            // The schedule ends at word 63: the last four steps need no further words.
            w = [w[1], w[2], w[3], if n < 12 { next_words(w) } else { w[0] }];
        }
        for (now, before) in both.iter_mut().zip(before) {
            *now = (_mm_add_epi32(now.0, before.0), _mm_add_epi32(now.1, before.1));
        }
    }
    *a = unpack(both[0]);
    *b = unpack(both[1]);
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
fn load(block: &Block) -> [__m128i; 4] {
    let swap = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    let halves = block.as_chunks().0;
    [0, 2, 4, 6].map(|n| {
        let words = _mm_set_epi64x(i64::from_le_bytes(halves[n + 1]), i64::from_le_bytes(halves[n]));
        _mm_shuffle_epi8(words, swap)
    })
}

/// The next four words of the schedule (FIPS 180-4, section 6.2.2, step 1).
#[target_feature(enable = "sha,sse4.1,ssse3")]
fn next_words([w0, w1, w2, w3]: [__m128i; 4]) -> __m128i {
    let sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8::<4>(w3, w2));
    _mm_sha256msg2_epu32(sum, w3)
}

/// Four rounds of both hashes (step 3).
#[target_feature(enable = "sha,sse4.1,ssse3")]
fn rounds(both: &mut [Words; 2], words: __m128i, k: &[u32; 4]) {
    let first = _mm_add_epi32(words, vector(*k));
    let second = _mm_shuffle_epi32::<0x0e>(first);
    for (abef, cdgh) in both.iter_mut() {
        *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, first);
    }
    for (abef, cdgh) in both.iter_mut() {
        *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, second);
    }
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
fn vector(words: [u32; 4]) -> __m128i {
    let [a, b, c, d] = words.map(u32::cast_signed);
    _mm_set_epi32(d, c, b, a)
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
fn pack(state: &State) -> Words {
    let [a, b, c, d, e, f, g, h] = *state;
    (vector([f, e, b, a]), vector([h, g, d, c]))
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
fn unpack((abef, cdgh): Words) -> State {
    let word = i32::cast_unsigned;
    [
        word(_mm_extract_epi32::<3>(abef)),
        word(_mm_extract_epi32::<2>(abef)),
        word(_mm_extract_epi32::<3>(cdgh)),
        word(_mm_extract_epi32::<2>(cdgh)),
        word(_mm_extract_epi32::<1>(abef)),
        word(_mm_extract_epi32::<0>(abef)),
        word(_mm_extract_epi32::<1>(cdgh)),
        word(_mm_extract_epi32::<0>(cdgh)),
    ]
}

//! The site: HTML pages, each with eleven or twelve real PNG and JPEG images.
//!
//! Most images of a page are shared with other pages by popularity, as logos
//! and product pictures are; the rest are its own neighbours.

use fastrand::Rng;
use jpeg_encoder::Encoder as JpegEncoder;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The shape of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WebSite {
    /// Makes everything.
    pub seed: u64,
    /// HTML pages.
    pub pages: u32,
    /// Images, PNG and JPEG in turn.
    pub images: u32,
}

/// Files in one directory, as a site of this size would have.
const FILES_PER_DIRECTORY: u32 = 100;
/// No file of a site is larger.
pub const FILE_BYTES_MAX: u64 = 40 << 10;
/// A usual quality of cameras and web pages.
const JPEG_QUALITY: u8 = 92;

impl WebSite {
    /// The images of a page: eleven or twelve numbers.
    pub fn images_of(&self, page: u32) -> Vec<u32> {
        let mut rng = Rng::with_seed(self.seed ^ 0x7061_6765 ^ u64::from(page) << 32);
        let count = rng.u32(11..=12);
        let own = page * (self.images / self.pages.max(1));
        (0..count)
            .map(|i| match i {
                // The square of a uniform draw favours low numbers.
                0..6 => (rng.f64() * rng.f64() * f64::from(self.images)) as u32,
                _ => (own + rng.u32(0..24)) % self.images,
            })
            .collect()
    }

    /// The path of a page below the site's root.
    pub fn page_path(page: u32) -> String {
        format!("p/{}/{page}.html", page / FILES_PER_DIRECTORY)
    }

    /// The path of an image below the site's root.
    pub fn image_path(image: u32) -> String {
        let ending = if image.is_multiple_of(2) {
            "jpg"
        } else {
            "png"
        };
        format!("i/{}/{image}.{ending}", image / FILES_PER_DIRECTORY)
    }

    /// Writes the whole site below `root`; returns its bytes. Calls `going` before each file, which
    /// may end the work by an error.
    pub fn write(&self, root: &Path, going: impl Fn() -> io::Result<()>) -> io::Result<u64> {
        let mut bytes = 0;
        for page in 0..self.pages {
            going()?;
            bytes += put(root, &WebSite::page_path(page), self.page(page).as_bytes())?;
        }
        for image in 0..self.images {
            going()?;
            bytes += put(root, &WebSite::image_path(image), &self.image(image)?)?;
        }
        Ok(bytes)
    }

    fn page(&self, page: u32) -> String {
        let mut rng = Rng::with_seed(self.seed ^ 0x6874_6d6c ^ u64::from(page) << 32);
        let mut html = format!("<!doctype html><title>Page {page}</title>\n<h1>Page {page}</h1>\n");
        for image in self.images_of(page) {
            let path = WebSite::image_path(image);
            writeln!(html, "<img src=\"/{path}\" alt=\"\">").expect("a string takes all");
        }
        for _ in 0..rng.u32(8..40) {
            html.push_str("<p>");
            for _ in 0..rng.u32(20..80) {
                let letters = rng.u32(2..11);
                html.extend((0..letters).map(|_| rng.lowercase()));
                html.push(' ');
            }
            html.push_str("</p>\n");
        }
        html
    }

    fn image(&self, image: u32) -> io::Result<Vec<u8>> {
        let mut rng = Rng::with_seed(self.seed ^ 0x696d_6167 ^ u64::from(image) << 32);
        let (width, height) = (rng.u32(64..128), rng.u32(64..96));
        let base = [rng.u8(..), rng.u8(..), rng.u8(..)];
        let pixel = |at: u32, rng: &mut Rng| {
            let shade = (at % width + at / width) as u8;
            base.map(|c| c.wrapping_add(shade) ^ rng.u8(0..64))
        };
        let pixels: Vec<u8> = (0..width * height)
            .flat_map(|at| pixel(at, &mut rng))
            .collect();
        let mut file = Vec::new();
        if image.is_multiple_of(2) {
            let jpeg = JpegEncoder::new(&mut file, JPEG_QUALITY);
            let (width, height) = (width as u16, height as u16);
            let encoded = jpeg.encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb);
            encoded.map_err(io::Error::other)?;
        } else {
            let mut encoder = png::Encoder::new(&mut file, width, height);
            encoder.set_color(png::ColorType::Rgb);
            let mut png = encoder.write_header().map_err(io::Error::other)?;
            png.write_image_data(&pixels).map_err(io::Error::other)?;
            png.finish().map_err(io::Error::other)?;
        }
        Ok(file)
    }
}

fn put(root: &Path, path: &str, bytes: &[u8]) -> io::Result<u64> {
    let path: PathBuf = root.join(path);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, bytes)?;
    Ok(bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Width of an image, which is decoded whole.
    fn width(path: &Path) -> usize {
        let file = io::BufReader::new(fs::File::open(path).unwrap());
        if path.extension().is_some_and(|ending| ending == "png") {
            let mut png = png::Decoder::new(file).read_info().unwrap();
            let mut pixels = vec![0; png.output_buffer_size().unwrap()];
            return png.next_frame(&mut pixels).unwrap().width as usize;
        }
        let mut jpeg = zune_jpeg::JpegDecoder::new(file);
        jpeg.decode().unwrap();
        jpeg.dimensions().unwrap().0
    }

    #[test]
    fn a_site_is_real_and_repeats() {
        let site = WebSite {
            seed: 7,
            pages: 3,
            images: 60,
        };
        let dirs = ["a", "b"]
            .map(|name| std::env::temp_dir().join(format!("site-{}-{name}", std::process::id())));
        let bytes = dirs
            .each_ref()
            .map(|dir| site.write(dir, || Ok(())).unwrap());
        assert_eq!(bytes[0], bytes[1]);
        for page in 0..3 {
            let path = WebSite::page_path(page);
            let html = fs::read_to_string(dirs[0].join(&path)).unwrap();
            assert_eq!(html, fs::read_to_string(dirs[1].join(&path)).unwrap());
            assert!((11..=12).contains(&html.matches("<img ").count()));
            for image in site.images_of(page) {
                let path = WebSite::image_path(image);
                assert!(width(&dirs[0].join(&path)) >= 64, "{path}");
                let same = fs::read(dirs[0].join(&path)).unwrap();
                assert!(same.len() as u64 <= FILE_BYTES_MAX);
                assert_eq!(same, fs::read(dirs[1].join(&path)).unwrap());
            }
        }
        dirs.iter().for_each(|dir| fs::remove_dir_all(dir).unwrap());
    }
}
